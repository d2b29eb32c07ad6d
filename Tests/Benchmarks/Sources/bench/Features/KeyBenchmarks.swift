import SteadfastQueue

/// The keys, which are created on first use, so that other benchmarks do not pay the cost.
private let keys = (0..<100_000).map { "key \($0)" }

/// The cost of keys and conditions.
///
/// All tasks are enqueued one after another, and then all tasks are performed. The keys are created
/// before the measurement, since a plain task has no key.
let keyBenchmarks: [Benchmark] = {
  let count = 100_000
  func benchmark(
    _ name: String,
    enqueue: @escaping @Sendable (TaskQueue, Int) async throws -> Void
  ) -> Benchmark {
    Benchmark(name, against: "a plain task", iterations: count) { count in
      let queue = Steadfast(workers: 1).queue
      await queue.register(Increment.self) { _, _ in }
      for number in 0..<count { try await enqueue(queue, number) }
      try await queue.runAvailable()
    }
  }
  return [
    benchmark("a plain task") { try await $0.enqueue(Increment(number: $1)) },
    benchmark("a task with a key") {
      try await $0.enqueue(Increment(number: $1), uniqueKey: keys[$1])
    },
    benchmark("a task that stands for others") { queue, number in
      try await queue.enqueue(
        Increment(number: number),
        uniqueKey: keys[number],
        options: TaskOptions(uniqueFor: .seconds(1))
      )
    },
    benchmark("a task in order, 10 to a key") { queue, number in
      let key = keys[number / 10]
      try await queue.enqueue(Increment(number: number), options: TaskOptions(orderKey: key))
    },
    benchmark("a task in order, all to one key") { queue, number in
      let key = keys[0]
      try await queue.enqueue(Increment(number: number), options: TaskOptions(orderKey: key))
    },
    benchmark("a task with a tag") { queue, number in
      try await queue.enqueue(Increment(number: number), options: TaskOptions(tags: ["tag"]))
    },
    benchmark("a task with a condition") { queue, number in
      if number == 0 { await queue.setCondition("network", holds: true) }
      try await queue.enqueue(
        Increment(number: number),
        options: TaskOptions(conditions: [.network])
      )
    },
    benchmark("9 of 10 are taken over") { queue, number in
      try await queue.enqueue(
        Increment(number: number),
        uniqueKey: keys[number / 10],
        onDuplicate: .replace
      )
    },
  ]
}()

/// The cost of a unique key in a file, with concurrent callers.
let fileKeyBenchmarks: [Benchmark] = {
  let count = 20_000
  let kinds: [(String, hasKey: Bool, isOrdered: Bool)] = [
    ("a plain task, 64 at a time", false, false),
    ("a task with a key, 64 at a time", true, false),
    ("a task in order, 64 at a time", false, true),
  ]
  return kinds.map { name, hasKey, isOrdered in
    Benchmark(name, against: "a plain task, 64 at a time", iterations: count) { count in
      try await withScratchFile { file in
        let store = JSONFileStore(at: file)
        let queue = Steadfast(store, workers: 1).queue
        try await withThrowingDiscardingTaskGroup { group in
          for producer in 0..<64 {
            group.addTask {
              for number in stride(from: producer, to: count, by: 64) {
                let key = hasKey ? keys[number] : nil
                let options = TaskOptions(orderKey: isOrdered ? keys[number / 10] : nil)
                try await queue.enqueue(
                  Increment(number: number),
                  uniqueKey: key,
                  options: options
                )
              }
            }
          }
        }
        try await store.close()
      }
    }
  }
}()
