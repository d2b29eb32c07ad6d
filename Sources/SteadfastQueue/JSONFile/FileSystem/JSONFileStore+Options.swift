extension JSONFileStore {
  /// The maximum size of a store's file, how the file grows, and which users may read it.
  public struct Options: Sendable, Hashable {
    /// The maximum number of bytes that a new task may use in the file, including everything stored
    /// with it.
    ///
    /// `nil`, the default, allows the format's limit, 16 MiB less 64 KiB. A higher value does not
    /// raise it. A payload uses a third more than its bytes if it is not JSON, is sealed, is nested
    /// more than 64 levels deep, or has tabs or line breaks between its values. A larger task is
    /// refused with ``JSONFileError/Code/taskTooLarge``.
    public var maxTaskSize: Int?
    /// The size of the file, in bytes, up to which tasks and values may be added.
    ///
    /// `nil`, the default, sets no limit.
    ///
    /// A call is refused with ``JSONFileError/Code/fileFull``, and stores nothing, if it would
    /// exceed the limit by adding tasks, by changing a task's payload or tags, or by setting a
    /// larger value. The store first compacts the file if that makes enough space and frees at
    /// least a quarter of the file. The call waits for the compaction.
    ///
    /// Changes to tasks in the file are always written, so that a full queue can drain. So the file
    /// may grow to about twice the limit, and further by the texts of stored errors, and by the
    /// values that tasks remember (``TaskQueueConfiguration/maxMemorySize``). A compaction
    /// temporarily needs space for a second copy of the remaining contents. A file that already
    /// exceeds the limit is opened.
    public var maxFileSize: Int?
    /// The number of bytes to reserve at the end of the file when none are left, at most
    /// 67,108,864.
    ///
    /// `nil`, the default, reserves none. A mebibyte (`1 << 20`) is a good choice.
    ///
    /// A flush is faster if the file keeps its size and its place on the disk. So the store writes
    /// zeros at the end of the file, and later replaces them with lines. This pays off with
    /// ``JSONFileStore/Flushing/eachBatch`` on most disks: measure it with yours. Everything is
    /// written twice, and the flush after a reservation takes longer than others.
    ///
    /// While the store is open, the file ends with zeros. So `tail -f` shows no new lines, and `jq`
    /// reports an error at the end of the file. Close the store before you copy the file: a copy
    /// that is made while lines replace zeros may be damaged (``JSONFileError/Code/damaged``).
    /// Closing the store removes the zeros, as does opening the file after a crash.
    /// ``JSONFileStatistics/byteCount`` and ``maxFileSize`` don't count them. If the disk has no
    /// space for them, the store continues without them.
    public var reservedSpace: Int?
    /// Which users may use the files.
    public var permissions: Permissions
    /// When the files can be read on an iPhone or a related device.
    ///
    /// It has no effect elsewhere.
    public var protection: Protection

    /// Makes options, with a default for every argument.
    ///
    /// A size that is out of range is refused when the store is opened
    /// (``JSONFileError/Code/invalidOptions``).
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
  /// After opening, the files have exactly these permissions, whatever the process's file mode
  /// creation mask is, unless they belong to another user. A file that every user may write is
  /// refused. A refused file keeps its permissions.
  ///
  /// A file that is created while the queue's file is open gets the group of that file. If the
  /// process may not set that group, only the new file's owner may use it, until it is opened
  /// again.
  public struct Permissions: Sendable, Hashable {
    let mode: UInt16

    /// Only the user who runs the process may use the files: `rw-------`.
    public static let owner = Permissions(mode: 0o600)
    /// The group of the files may read them, to watch them or to back them up: `rw-r-----`.
    public static let groupMayRead = Permissions(mode: 0o640)
    /// Members of the files' group may use them too, one process at a time: `rw-rw----`.
    ///
    /// A compaction creates a new file, which belongs to the user whose process compacts. Set the
    /// folder's group and its set-group-ID bit, and let the group write to the folder.
    public static let group = Permissions(mode: 0o660)
  }

  /// A file's data protection class: when an iPhone or a related device lets the file be read.
  ///
  /// It applies to iPhone, iPad, Apple TV, Apple Watch and Vision. It has no effect on a Mac, in
  /// the simulator and on Linux. It is set each time the file is opened, whichever class the app's
  /// entitlement chooses for its files in general.
  ///
  /// While the file is inaccessible, a queue can't be opened, and its file can't be written. A
  /// write that fails for this reason is refused. A flush that fails closes the store
  /// (``JSONFileError/Code/outcomeUnknown``).
  public struct Protection: Sendable, Hashable {
    /// The number of the class, 1 to 4 for A to D.
    let number: Int32

    /// The file can be read only while the device is unlocked: class A, `NSFileProtectionComplete`.
    ///
    /// The queue must be closed when the device is locked.
    public static let whileUnlocked = Protection(number: 1)
    /// A file that is open when the device is locked stays open: class B.
    ///
    /// No file can be opened while the device is locked. The class is
    /// `NSFileProtectionCompleteUnlessOpen`.
    public static let unlessOpen = Protection(number: 2)
    /// The file can be read after the device was first unlocked since it started: class C.
    ///
    /// Tasks can be performed in the background while the device is locked. The class is
    /// `NSFileProtectionCompleteUntilFirstUserAuthentication`.
    public static let untilFirstUnlock = Protection(number: 3)
    /// The file can always be read: class D, `NSFileProtectionNone`.
    public static let always = Protection(number: 4)
  }
}
