@testable import SteadfastQueue

extension WritePipeline {
  /// Everything whose caller still waits, in the order of the file.
  var all: [Item] { committed + flushing + written + pending }
}
