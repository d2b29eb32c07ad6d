@testable import SteadfastQueue

extension WritePipeline {
  /// Everything whose caller still waits, in the order of the file.
  var all: [Item] { flushing + written + pending }
}
