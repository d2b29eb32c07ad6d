extension [TaskChange] {
  /// Makes the bytes of new tasks' payloads, once and for all: what was acknowledged is what is
  /// compacted and verified later, and no code of a payload's type runs on the store's thread.
  ///
  /// - Throws: what a payload's encoding throws.
  mutating func encodePayloads() throws {
    for index in indices {
      guard case .insert(let record, let policy) = self[index], !record.payload.isEncoded else {
        continue
      }
      let encoded = record.replacing(payload: try record.payload.encoded())
      self[index] = .insert(encoded, onDuplicate: policy)
    }
  }
}
