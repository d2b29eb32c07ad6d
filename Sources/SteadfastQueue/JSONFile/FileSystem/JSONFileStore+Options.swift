extension JSONFileStore {
  /// How large a store's file may grow, how it grows, and which users may read it.
  public struct Options: Sendable, Hashable {
    /// The most bytes that a new task may take in the file, with everything that is known of it.
    ///
    /// `nil`, the default, allows as many bytes as the format does, 16 MiB less 64 KiB. More than
    /// that is never allowed. A payload takes a third more than its bytes if it is not JSON, is
    /// sealed, is nested more than 64 deep, or has tabs or line breaks between its values. A larger
    /// task is refused with ``JSONFileError/Code/taskTooLarge``.
    public var maxTaskSize: Int?
    /// The size of the file, in bytes, up to which tasks and values may be added.
    ///
    /// `nil`, the default, sets no limit.
    ///
    /// A call that would exceed the limit by adding tasks, by giving a task another payload or
    /// other tags, or by setting a larger value, is refused with ``JSONFileError/Code/fileFull``,
    /// and stores nothing. Before that, the file is compacted if this makes room and frees at least
    /// a quarter of the file. The call waits for the compaction.
    ///
    /// What happens to tasks that are in the file is always written, so that a full queue can
    /// drain. This may let the file grow to about twice the limit, and further by the texts of
    /// stored errors, and by what tasks remember (``TaskQueueConfiguration/maxMemorySize``). For a
    /// moment, a compaction takes room for a second copy of what is left. A file that is already
    /// larger than the limit is opened.
    public var maxFileSize: Int?
    /// How many bytes to reserve at the end of the file whenever none are left, at most 67,108,864.
    ///
    /// `nil`, the default, reserves none. A mebibyte (`1 << 20`) is a good choice.
    ///
    /// A flush is faster if the file keeps its size and its place on the disk. So the store writes
    /// zeros at the end of the file, and later replaces them with lines. This pays with
    /// ``JSONFileStore/Flushing/eachBatch`` on most disks: measure it with yours. Everything is
    /// written twice, and the flush after a reservation takes longer than others.
    ///
    /// While the store is open, the file ends with zeros. So `tail -f` shows no new lines, and `jq`
    /// refuses the end of the file. Close the store before you copy the file: a copy that is made
    /// while lines replace zeros may be damaged (``JSONFileError/Code/damaged``). Closing the store
    /// cuts the zeros off. After a crash, opening the file does. ``JSONFileStatistics/byteCount``
    /// and ``maxFileSize`` do not count them. If the disk has no room for them, the store goes on
    /// without.
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

  /// Which users may read and write the file, its lock file, and the file that a compaction writes.
  ///
  /// From opening on, the files have exactly these permissions, whatever the process's file mode
  /// creation mask is, unless they belong to another user. A file that every user may write is
  /// refused. A refused file keeps the permissions that it has.
  ///
  /// A file that is made while the queue's file is open gets the group of that file. If the process
  /// may not give it that group, only the new file's owner may use it, until it is opened again.
  public struct Permissions: Sendable, Hashable {
    let mode: UInt16

    /// Only the user who runs the process may use the files: `rw-------`.
    public static let owner = Permissions(mode: 0o600)
    /// The group of the files may read them, to watch them or to back them up: `rw-r-----`.
    public static let groupMayRead = Permissions(mode: 0o640)
    /// The group of the files may use them too, one process at a time: `rw-rw----`.
    ///
    /// A compaction makes a new file, which belongs to the user whose process compacts. Give the
    /// folder the group and its set-group-ID bit, and let the group write to the folder.
    public static let group = Permissions(mode: 0o660)
  }

  /// A file's data protection class: when an iPhone or a related device lets the file be read.
  ///
  /// It applies to iPhone, iPad, Apple TV, Apple Watch and Vision. It has no effect on a Mac, in
  /// the simulator and on Linux. It is set each time the file is opened, whatever the app's
  /// entitlement asks for its files in general.
  ///
  /// While its file is locked away, a queue can't be opened, and its file can't be written. A write
  /// that fails for this reason is refused. A flush that fails closes the store
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
    /// The file can be read from the first unlock after a start of the device on: class C.
    ///
    /// Tasks can be performed in the background while the device is locked. The class is
    /// `NSFileProtectionCompleteUntilFirstUserAuthentication`.
    public static let untilFirstUnlock = Protection(number: 3)
    /// The file can always be read: class D, `NSFileProtectionNone`.
    public static let always = Protection(number: 4)
  }
}
