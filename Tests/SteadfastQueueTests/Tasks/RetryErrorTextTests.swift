import Foundation
import SteadfastQueue
import Testing

@Suite struct RetryErrorTextTests {
  @Test(
    arguments: [
      TimeoutError(limit: .seconds(5)), NotYet("pending"), NotYet(retryAfter: .seconds(5)),
    ] as [any Error]
  )
  func `the localized description of an error is its description`(error: any Error) {
    #expect(error.localizedDescription == "\(error)")
    #expect(error.localizedDescription.contains(";"))
  }
}
