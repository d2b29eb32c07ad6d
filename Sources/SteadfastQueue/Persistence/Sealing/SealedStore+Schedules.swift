#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// The values that hold schedules: they have payloads, so they are sealed, too.
///
/// The same bytes have another seal each time. So a comparison is made with what the present value
/// is when it is opened, and the store below compares the sealed bytes.
extension SealedStore {
  /// Whether the value with this name is sealed; those of the application are not.
  static func sealsValue(named name: String) -> Bool {
    name.utf8.starts(with: "steadfast.schedule.".utf8)
  }

  /// What stands for a value that can't be opened, in a comparison.
  ///
  /// No value of a schedule has no bytes.
  static var unopenedValue: [UInt8] { [] }

  /// Returns the change of a sealed value, as the store below compares and sets it.
  func sealedValue(
    _ name: String,
    from old: [UInt8]?,
    to new: [UInt8]?
  ) async throws -> TaskChange {
    var expected = old
    if let old, let present = try await base.value(named: name) {
      // One that can be opened by now differs.
      let plain = old == Self.unopenedValue ? try? opened(present, name) : try opened(present, name)
      if plain ?? Self.unopenedValue == old { expected = present }
    }
    let context = PayloadSeal.Context(value: name)
    let sealed = try new.map { Array(try seal.seal(Data($0), context)) }
    return .setValue(named: name, from: expected, to: sealed)
  }

  /// Returns the bytes of a sealed value.
  func opened(_ value: [UInt8], _ name: String) throws -> [UInt8] {
    do {
      return Array(try seal.open(Data(value), PayloadSeal.Context(value: name)))
    } catch {
      // It may have been stored before there was a seal.
      if acceptsPlain, Self.isPlain(value) { return value }
      throw TaskQueueError(
        .unopenedPayload,
        "the value '\(name)' of a schedule can't be opened: \(error). It is kept as it is, for when "
          + "it can be",
        underlying: error
      )
    }
  }
}

extension PayloadSeal.Context {
  /// The context of a value: a unique key that no task has, and a version that no payload has.
  fileprivate init(value name: String) {
    self.init(
      id: TaskID(high: 0, low: 0),
      uniqueKey: name,
      name: "steadfast.schedule",
      format: .binary,
      version: 0
    )
  }
}
