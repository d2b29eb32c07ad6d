@testable import SteadfastQueue

extension StoredValues {
  /// The stored values, by their names.
  var committed: [ExactText: Value] {
    Dictionary(uniqueKeysWithValues: packed.map { (ExactText($0.name), $0.value) })
  }
}
