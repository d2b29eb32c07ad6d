import Foundation
import SteadfastQueue
import Testing

@Suite struct RetryErrorTextTests {
  @Test(
    arguments: [
      TimeoutError(limit: .seconds(5)), NotYet("pending"), NotYet(retryAfter: .seconds(5)),
    ] as [any Error]
  )
  func `a localized description says what the error says`(error: any Error) {
    #expect(error.localizedDescription == "\(error)")
    #expect(error.localizedDescription.contains(";"))
  }
}
