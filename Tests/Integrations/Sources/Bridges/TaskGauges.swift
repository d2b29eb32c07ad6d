// Numbers of tasks with swift-metrics. Copy this file: it is yours.

// snippet.file
import Foundation
import Metrics
import SteadfastQueue

/// Reports how many tasks there are.
///
/// Only one process needs to do this.
struct TaskGauges {
  private var gauges: [[String]: Gauge] = [:]

  mutating func record(_ census: TaskCensus) {
    var values = gauges.mapValues { _ in 0.0 }
    for row in census.rows {
      let queue = row.queue.isEmpty ? "default" : row.queue
      let names = [queue, row.name, "\(row.state)"]
      let age = row.oldestDue.map { census.date.timeIntervalSince($0) }
      values[["steadfast_tasks"] + names] = Double(row.count)
      values[["steadfast_tasks_due"] + names] = Double(row.due)
      values[["steadfast_oldest_due_seconds"] + names] = age ?? 0
    }
    for (key, value) in values {
      let labels = zip(["queue", "task", "state"], key.dropFirst())
      let gauge =
        gauges[key] ?? Gauge(label: key[0], dimensions: Array(labels))
      gauge.record(value)
      gauges[key] = gauge
    }
  }
}
// snippet.end
