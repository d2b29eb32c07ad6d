import Foundation
import SteadfastQueue
import TestSupport
import Testing

@Suite struct ThreadIdentityTests {
  @Test func `a task that resumes on another thread has another thread identity`() async {
    let threads = Log<ThreadIdentity>()
    let executor = ThreadForEachJob { threads.add(.current) }
    let found = await Task(executorPreference: executor) {
      var found = [ThreadIdentity.current]
      for _ in 0..<3 {
        await passThroughMainActor()
        found.append(.current)
      }
      return found
    }.value
    #expect(found == threads.entries)
    #expect(found.indices.allSatisfy { !found[..<$0].contains(found[$0]) })
  }

  @Test func `the thread identity is constant on a thread`() {
    #expect(ThreadIdentity.current == ThreadIdentity.current)
  }
}

@MainActor @inline(never) private func passThroughMainActor() {
  dispatchPrecondition(condition: .onQueue(.main))
}
