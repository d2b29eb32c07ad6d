extension WorkMachine {
  /// Names whose parked tasks may be performed now.
  struct ParkedNames: Sendable, Equatable {
    var names: Set<String> = []
    /// Those that have no handler of their own too.
    var others = false

    var isEmpty: Bool { names.isEmpty && !others }
  }
}
