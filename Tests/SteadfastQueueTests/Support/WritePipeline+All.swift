@testable import SteadfastQueue

extension WritePipeline {
  /// All items whose callers are waiting, in the order in which the items are written.
  var all: [Item] { flushing + written + pending }
}
