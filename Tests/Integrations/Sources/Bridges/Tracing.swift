// Traces with swift-distributed-tracing. Copy this file: it is yours.

// snippet.file
import SteadfastQueue
import Tracing

/// Traces tasks.
///
/// The span of an attempt links to the span that added the task.
struct TracingMiddleware: TaskMiddleware, Injector, Extractor {
  func enqueue(_ tasks: [TaskDraft], next: EnqueueChain) async throws {
    try await withSpan("send", ofKind: .producer) { span in
      span.set("send", tasks.first?.queue ?? "")
      span.attributes["messaging.batch.message_count"] = tasks.count
      var tasks = tasks
      let instrument = InstrumentationSystem.instrument
      for i in tasks.indices {
        // A task inherits the metadata of the task whose handler adds it.
        let own = tasks[i].metadata
        tasks[i].metadata = own.filter { !$0.key.hasPrefix("trace.") }
        let context = span.context
        instrument.inject(context, into: &tasks[i].metadata, using: self)
      }
      try await next(tasks)
    }
  }

  func perform(_ task: TaskContext, next: AttemptChain) async throws {
    var sender = ServiceContext.topLevel
    let instrument = InstrumentationSystem.instrument
    instrument.extract(task.metadata, into: &sender, using: self)
    let name = "process \(task.name)"
    let thrown = await withSpan(name, ofKind: .consumer) {
      span -> (any Error)? in
      span.set("process", task.queueName)
      span.addLink(SpanLink(context: sender, attributes: [:]))
      span.attributes["messaging.message.id"] = "\(task.id)"
      span.attributes["steadfast.retry_count"] = task.retryCount
      span.attributes["steadfast.wait"] = task.waited / .seconds(1)
      do { try await next() } catch {
        span.attributes["steadfast.end"] = "\(type(of: error))"
        // These aren't failures.
        if error is TaskSuspended || error is TaskSnoozed { return error }
        if error is CancellationError { return error }
        span.attributes["error.type"] = "\(type(of: error))"
        span.setStatus(SpanStatus(code: .error))
        span.recordError(error)
        return error
      }
      return nil
    }
    if let thrown { throw thrown }
  }

  typealias Carrier = [String: String]
  func inject(_ text: String, forKey key: String, into all: inout Carrier) {
    // Metadata has little room, and a client may send long headers.
    if text.utf8.count <= 512 { all["trace.\(key)"] = text }
  }
  func extract(key: String, from all: Carrier) -> String? {
    all["trace.\(key)"]
  }
}

extension Span {
  fileprivate func set(_ operation: String, _ queue: String) {
    attributes["messaging.system"] = "steadfast"
    attributes["messaging.operation.name"] = operation
    attributes["messaging.operation.type"] = operation
    attributes["messaging.destination.name"] = queue
  }
}
// snippet.end
