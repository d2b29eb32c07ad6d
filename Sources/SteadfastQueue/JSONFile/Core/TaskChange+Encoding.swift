extension [TaskChange] {
  /// Encodes the payloads that tasks get, once and for all.
  ///
  /// So the bytes that were acknowledged are the ones that are compacted and verified later. No
  /// code of a payload's type runs on the store's thread.
  ///
  /// - Throws: The error that a payload's encoding throws.
  mutating func encodePayloads() throws {
    for index in indices {
      switch self[index] {
      case .insert(let record, let policy):
        guard !record.payload.isEncoded else { continue }
        let encoded = record.replacing(payload: try record.payload.encoded())
        self[index] = .insert(encoded, onDuplicate: policy)
      case .update(let id, let update):
        guard let payload = update.payload, !payload.isEncoded else { continue }
        self[index] = .update(id, update.replacing(payload: try payload.encoded()))
      case .succeed, .retry, .abandon, .release, .park, .unpark, .cancel, .pause, .resume, .restart,
        .reschedule, .remove, .extend, .prune, .rebase, .remember, .suspend, .complete, .setValue:
        continue
      }
    }
  }
}
