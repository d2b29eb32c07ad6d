extension JSONFileStore {
  /// How large a store's file may grow, and who may read it.
  public struct Options: Sendable, Hashable {
    /// How many bytes a new task may take in the file, with all that is known of it; `nil`, the
    /// default, for as many as the format allows, 16 MiB less 64 KiB.
    ///
    /// More than that is never allowed. A payload takes a third more than its bytes if it is not
    /// JSON, is sealed, is nested more than 64 deep, or has tabs or line breaks between its values.
    /// A larger task is refused with ``JSONFileError/Code/taskTooLarge``.
    public var maxTaskSize: Int?
    /// How many bytes the file may have, so that a task may be added; `nil`, the default, for any
    /// number.
    ///
    /// A call that would add tasks beyond it, or give one another payload or other tags, is refused with
    /// ``JSONFileError/Code/fileFull``, and stores nothing. Before that the file is compacted if this
    /// makes room and at least a quarter of it is dead; the call waits for it.
    ///
    /// What becomes of tasks that are there is always written, so that a full queue can drain. It may
    /// let the file grow to twice the limit or so, and further by the texts of errors that are kept; a
    /// compaction takes room for what is left once more, for a moment. A file that is larger already
    /// is opened.
    public var maxFileSize: Int?
    /// Who may use the files.
    public var permissions: Permissions
    /// When the files can be read on an iPhone and its kin; it means nothing elsewhere.
    public var protection: Protection

    /// Makes options; every argument has a default.
    ///
    /// A limit below 1 is refused when the store is opened (``JSONFileError/Code/invalidOptions``).
    public init(
      maxTaskSize: Int? = nil,
      maxFileSize: Int? = nil,
      permissions: Permissions = .owner,
      protection: Protection = .untilFirstUnlock
    ) {
      self.maxTaskSize = maxTaskSize
      self.maxFileSize = maxFileSize
      self.permissions = permissions
      self.protection = protection
    }
  }

  /// Who may read and write the file, its lock file, and the one that a compaction writes.
  ///
  /// The files have exactly these permissions from opening on, whatever the process's file mode
  /// creation mask is, unless they belong to another user. A file that every user may write is refused,
  /// and whatever is refused keeps the permissions that it has.
  public struct Permissions: Sendable, Hashable {
    let mode: UInt16

    /// The user who runs the process, and nobody else: `rw-------`.
    public static let owner = Permissions(mode: 0o600)
    /// The group of the files may read them, to watch or to back up: `rw-r-----`.
    public static let groupMayRead = Permissions(mode: 0o640)
    /// The group of the files may use them too, one process at a time: `rw-rw----`.
    ///
    /// Compaction makes a new file, which belongs to the user who does it: give the folder the group
    /// and its set-group-ID bit, and let the group write it.
    public static let group = Permissions(mode: 0o660)
  }

  /// When a file can be read on an iPhone, iPad, Apple TV, Apple Watch or Vision: its data protection
  /// class.
  ///
  /// It is set whenever the file is opened, whatever the app's entitlement asks for its files in
  /// general. On a Mac, in the simulator and on Linux it means nothing. A queue whose file is locked
  /// away can neither be opened nor written: a write that fails for it is refused, and a flush that
  /// fails closes the store (``JSONFileError/Code/outcomeUnknown``).
  public struct Protection: Sendable, Hashable {
    /// The number of the class, 1 to 4 for A to D.
    let number: Int32

    /// Only while the device is unlocked: class A, `NSFileProtectionComplete`.
    ///
    /// The queue must be closed when the device is locked.
    public static let whileUnlocked = Protection(number: 1)
    /// A file that is open when the device is locked stays so, and none is opened meanwhile: class B,
    /// `NSFileProtectionCompleteUnlessOpen`.
    public static let unlessOpen = Protection(number: 2)
    /// From the first unlocking after a start of the device on, so that tasks can be performed in the
    /// background while it is locked: class C,
    /// `NSFileProtectionCompleteUntilFirstUserAuthentication`.
    public static let untilFirstUnlock = Protection(number: 3)
    /// Always: class D, `NSFileProtectionNone`.
    public static let always = Protection(number: 4)
  }
}
