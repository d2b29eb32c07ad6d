extension TaskTable {
  /// What a table holds at one moment: a copy that shares memory with the table.
  ///
  /// It has only the parts that a file is made of. A part that has two owners is copied when it
  /// changes.
  struct Snapshot: Sendable {
    let tasks: Slab<Entry>
    let memories: TaskMemories
    let values: Set<PackedValue>
  }

  /// What the table holds now.
  var snapshot: Snapshot {
    Snapshot(tasks: entries.slab, memories: memories, values: values.packed)
  }
}
