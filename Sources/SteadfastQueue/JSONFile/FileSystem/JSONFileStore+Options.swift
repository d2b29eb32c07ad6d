extension JSONFileStore {
  /// The options of a store's file: limits for its size, its reserved space, its permissions, and
  /// its data protection.
  public struct Options: Sendable, Hashable {
    /// The maximum size of a new task's line in the file, in bytes.
    ///
    /// `nil`, the default, allows the format's limit, 16 MiB less 64 KiB. A higher value has the
    /// same effect. A larger task is refused with ``JSONFileError/Code/taskTooLarge``.
    ///
    /// The line contains the payload. A payload is written in Base64, which takes a third more
    /// space, if it is not JSON, is sealed, is nested more than 64 levels deep, or has tabs or line
    /// breaks between its values.
    public var maxTaskSize: Int?
    /// The size of the file, in bytes, beyond which no tasks and values may be added.
    ///
    /// `nil`, the default, sets no limit.
    ///
    /// If a call would exceed the limit by adding tasks, by changing a task's payload, tags or
    /// metadata, or by setting a larger value, it throws ``JSONFileError/Code/fileFull`` and stores
    /// nothing. But if a compaction makes enough space, and frees at least a quarter of the file,
    /// the store first compacts the file, and the call waits for that.
    ///
    /// Other changes to tasks in the file are always written, so that the tasks of a full queue can
    /// be performed. So the file may grow to about twice the limit, and further by the messages of
    /// stored errors, and by the values that tasks remember
    /// (``TaskQueueConfiguration/maxMemorySize``). During a compaction, the disk also needs space
    /// for the new file. A file that already exceeds the limit can be opened.
    public var maxFileSize: Int?
    /// The number of bytes to reserve at the end of the file, each time the reserved bytes are used
    /// up; at most 67,108,864.
    ///
    /// `nil`, the default, reserves none. A mebibyte (`1 << 20`) is a good choice.
    ///
    /// On most file systems, a flush is faster if the file has not grown since the last flush. So
    /// the store writes zeros at the end of the file, and later replaces the zeros with lines. With
    /// ``JSONFileStore/Flushing/eachBatch``, this makes changes faster on most disks: measure it on
    /// yours. In return, the store writes twice as many bytes, and the flush after a reservation
    /// takes longer than others.
    ///
    /// While the store is open, the file ends with zeros. So `tail -f` shows no new lines, and `jq`
    /// reports an error at the end of the file. Close the store before you copy the file:
    /// otherwise, the copy may be damaged (``JSONFileError/Code/damaged``). Closing the store
    /// removes the zeros, as does opening the file after a crash. ``JSONFileStatistics/byteCount``
    /// and ``maxFileSize`` don't count them. If the disk has no space for them, the store continues
    /// without them.
    public var reservedSpace: Int?
    /// Which users may use the files.
    public var permissions: Permissions
    /// When an iPhone or a related device lets the files be read.
    ///
    /// This option has no effect on other systems.
    public var protection: Protection

    /// Makes options.
    ///
    /// If a size is out of range, opening the store throws ``JSONFileError/Code/invalidOptions``.
    public init(
      maxTaskSize: Int? = nil,
      maxFileSize: Int? = nil,
      reservedSpace: Int? = nil,
      permissions: Permissions = .owner,
      protection: Protection = .untilFirstUnlock
    ) {
      self.maxTaskSize = maxTaskSize
      self.maxFileSize = maxFileSize
      self.reservedSpace = reservedSpace
      self.permissions = permissions
      self.protection = protection
    }
  }

  /// The users who may read and write the file, its lock file, and the file that a compaction
  /// writes.
  ///
  /// Opening the store gives the files exactly these permissions, whatever the process's `umask`
  /// is. A file that belongs to another user keeps its permissions. A file that every user may
  /// write is refused, and keeps its permissions.
  ///
  /// A file that is created while the queue's file is open, such as that of a compaction, gets the
  /// same group. If the process may not set that group, only the new file's owner may use the new
  /// file, until the store is opened again.
  public struct Permissions: Sendable, Hashable {
    let mode: UInt16

    /// Only the user who runs the process may use the files: `rw-------`.
    public static let owner = Permissions(mode: 0o600)
    /// Members of the files' group may also read them, for example to back them up: `rw-r-----`.
    public static let groupMayRead = Permissions(mode: 0o640)
    /// Members of the files' group may also write to them: `rw-rw----`.
    ///
    /// So a process of another user can open the store when no other process has it open. A
    /// compaction creates a new file, which belongs to the user whose process compacts. Set the
    /// folder's group and its set-group-ID bit, and let the group write to the folder.
    public static let group = Permissions(mode: 0o660)
  }

  /// The data protection class of the files, which determines when an iPhone or a related device
  /// lets them be read.
  ///
  /// The class has an effect on iPhone, iPad, Apple TV, Apple Watch and Apple Vision, and none on a
  /// Mac, in the simulator and on Linux. Opening the store sets the class, even if the app's
  /// entitlement names another one.
  ///
  /// While the files are inaccessible, a store can't be opened, and an open store can't write. If a
  /// write fails, the call throws and stores nothing. If a flush fails, the store is closed
  /// (``JSONFileError/Code/outcomeUnknown``).
  public struct Protection: Sendable, Hashable {
    /// The number of the class: 1 to 4 stand for the classes A to D.
    let number: Int32

    /// The files can be read only while the device is unlocked: class A,
    /// `NSFileProtectionComplete`.
    ///
    /// Close the queue before the device is locked.
    public static let whileUnlocked = Protection(number: 1)
    /// The files can be opened only while the device is unlocked, but stay usable when it is
    /// locked: class B.
    ///
    /// The class is `NSFileProtectionCompleteUnlessOpen`.
    public static let unlessOpen = Protection(number: 2)
    /// The files can be read once the device has been unlocked for the first time after it started:
    /// class C.
    ///
    /// So tasks can be performed in the background while the device is locked. The class is
    /// `NSFileProtectionCompleteUntilFirstUserAuthentication`.
    public static let untilFirstUnlock = Protection(number: 3)
    /// The files can always be read: class D, `NSFileProtectionNone`.
    public static let always = Protection(number: 4)
  }
}
