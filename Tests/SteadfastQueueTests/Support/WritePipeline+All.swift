@testable import SteadfastQueue

extension WritePipeline {
  /// All items whose callers are waiting, in the order of the file.
  var all: [Item] { flushing + written + pending }
}
