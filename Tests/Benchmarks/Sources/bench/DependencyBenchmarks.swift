import SteadfastQueue

/// The cost of dependencies.
///
/// All tasks are enqueued, and then all tasks are performed.
let dependencyBenchmarks: [Benchmark] = {
  let count = 10_000
  func benchmark(
    _ name: String,
    against baseline: String,
    enqueue: @escaping @Sendable (TaskQueue, Int) async throws -> Void
  ) -> Benchmark {
    Benchmark(name, against: baseline, iterations: count) { count in
      let queue = Steadfast(workers: 1).queue
      await queue.register(Increment.self) { _, _ in }
      try await enqueue(queue, count)
      try await queue.runAvailable()
      // A task that is never performed would make the row seem cheap.
      let left = try await queue.count
      precondition(left == 0, "\(left) tasks of '\(name)' were not performed")
    }
  }
  let (single, batch) = ("10,000 one by one", "10,000 in one call")
  return [
    benchmark(single, against: single) { queue, count in
      for number in 0..<count { try await queue.enqueue(Increment(number: number)) }
    },
    benchmark("9 of 10 wait for one other", against: single) { queue, count in
      var first: Set<TaskID> = []
      for number in 0..<count {
        let isFirst = number.isMultiple(of: 10)
        let options = isFirst ? TaskOptions() : TaskOptions(dependencies: first)
        let task = try await queue.enqueue(Increment(number: number), options: options)
        if isFirst { first = [task.id] }
      }
    },
    benchmark("a chain of 10,000", against: single) { queue, count in
      var last: Set<TaskID> = []
      for number in 0..<count {
        let task = try await queue.enqueue(
          Increment(number: number),
          options: TaskOptions(dependencies: last)
        )
        last = [task.id]
      }
    },
    benchmark("10,000, and one that names them", against: single) { queue, count in
      var all: Set<TaskID> = []
      for number in 0..<count {
        all.insert(try await queue.enqueue(Increment(number: number)).id)
      }
      try await queue.enqueue(Increment(number: count), options: TaskOptions(dependencies: all))
    },
    benchmark(batch, against: batch) { queue, count in
      try await queue.enqueue(contentsOf: (0..<count).map { Increment(number: $0) })
    },
    benchmark("a batch of 10,000, and its follower", against: batch) { queue, count in
      try await queue.enqueue(
        contentsOf: (0..<count).map { Increment(number: $0) },
        then: Increment(number: count)
      )
    },
    benchmark("a chain of 10,000 in one call", against: batch) { queue, count in
      try await queue.enqueue { tasks in
        var last: Set<TaskID> = []
        for number in 0..<count {
          last = [
            try tasks.add(Increment(number: number), options: TaskOptions(dependencies: last))
          ]
        }
      }
    },
  ]
}()
