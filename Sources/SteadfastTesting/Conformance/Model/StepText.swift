import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// The texts of a check's steps, with tasks as numbers and dates as seconds.
extension TaskChange {
  var step: String {
    switch self {
    case .insert(let record, let policy): "insert \(record.step) (\(policy))"
    case .succeed(let lease, let date, let retains):
      "succeed \(lease.step) at \(date.step)\(retains.step)"
    case .retry(let lease, let date, let count, let failure, let origin):
      "retry \(lease.step) at \(date.step), retries \(count), \(failure?.step ?? "no failure")"
        + origin.stepFrom
    case .abandon(let lease, let failure, let retains):
      "abandon \(lease.step), \(failure.step)\(retains.step)"
    case .release(let lease): "release \(lease.step)"
    case .park(let lease, let failure): "park \(lease.step), \(failure.step)"
    case .unpark(let name, let queue): "unpark \(name)\(queue.isEmpty ? "" : " in \(queue)")"
    case .cancel(let target, let date, let retains):
      "cancel \(target.step) at \(date.step)\(retains.step)"
    case .pause(let target): "pause \(target.step)"
    case .resume(let id): "resume \(id.number)"
    case .restart(let target, let date, let forgets):
      "restart \(target.step) at \(date.step)\(forgets ? ", forgetting" : "")"
    case .reschedule(let target, let date, let origin):
      "reschedule \(target.step) to \(date.step)\(origin.stepFrom)"
    case .update(let id, let update): "update \(id.number) with \(update.step)"
    case .remove(let id): "remove \(id.number)"
    case .extend(let lease, let duration): "extend \(lease.step) for \(duration.step)"
    case .prune(let state, let date, let count, let now, let queue):
      "prune \(state)\(queue.isEmpty ? "" : " in \(queue)") at \(now.step)"
        + (date.map { ", ended before \($0.step)" } ?? "")
        + (count.map { ", keeping \($0)" } ?? "")
    case .remember(let lease, let name, let value):
      "\(lease.step) remembers '\(name.prefix(80))': \([UInt8]?(value).step)"
    case .suspend(let lease, let date, let names, let origin):
      "suspend \(lease.step) until \(date.step)\(origin.stepFrom)"
        + (names.isEmpty ? "" : ", awaiting \(names.map { "'\($0.prefix(80))'" })")
    case .complete(let id, let name, let value):
      "complete '\(name.prefix(80))' of \(id.number): \([UInt8]?(value).step)"
    case .rebase(let date): "rebase to \(date.step)"
    case .setValue(let name, let old, let new):
      "set the value '\(name.prefix(80))' from \(old.step) to \(new.step)"
    @unknown default: "\(self)"
    }
  }
}

extension BatchProgress? {
  fileprivate var step: String {
    guard let self else { return "" }
    return ", batch: \(self.succeeded) of \(self.total) succeeded, \(self.failed) failed"
  }
}

extension Date? {
  fileprivate var stepFrom: String { self.map { ", counted from \($0.step)" } ?? "" }
}

extension Bool {
  fileprivate var step: String { self ? ", keeping it" : "" }
}

extension TaskUpdate {
  fileprivate var step: String {
    var parts: [String] = []
    if payload != nil { parts.append("another payload") }
    if let priority { parts.append("priority \(priority.rawValue)") }
    if let maxRetries { parts.append("maxRetries \(maxRetries)") }
    if let usesBackoff { parts.append("usesBackoff \(usesBackoff)") }
    if let timeLimit { parts.append("timeLimit \(timeLimit)") }
    if let expiryDate { parts.append("expiryDate \(expiryDate.step)") }
    if let tags { parts.append("tags \(tags.sorted())") }
    return parts.isEmpty ? "nothing" : parts.joined(separator: ", ")
  }
}

extension [UInt8]? {
  /// The bytes of a value, or their number if there are many.
  var step: String {
    guard let self else { return "none" }
    return self.count > 20 ? "\(self.count) bytes" : "\(self)"
  }
}

extension Duration {
  var step: String { "\(self / .seconds(1)) s" }
}

extension TaskFailure {
  fileprivate var step: String { "'\(reason)' at \(date.step)" }
}

extension Lease {
  var step: String { "\(id.number) (lease \(token))" }
}

extension TaskTarget {
  fileprivate var step: String {
    switch self {
    case .claimed(let lease): "claimed \(lease.step)"
    case .unclaimed(let id): "unclaimed \(id.number)"
    }
  }
}

extension ChangeOutcome {
  var step: String {
    switch self {
    case .replaced(let id): "replaced \(id.number)"
    case .duplicate(let id): "duplicate of \(id.number)"
    case .superseded(let id): "superseded by \(id.number)"
    case .unmetDependency(let id): "unmet dependency \(id.number)"
    case .doneWithConsequences(let consequences):
      "done, with \(consequences.tasks.map(\.number)) along\(consequences.batch.step)"
    case .done, .identityTaken, .stale, .batchRefused, .valueDiffers: "\(self)"
    @unknown default: "\(self)"
    }
  }
}

extension TaskRecord {
  fileprivate var step: String {
    var text = "\(id.number) '\(name)'"
    if !queue.isEmpty { text += " in \(queue)" }
    if priority.rawValue != 0 { text += " priority \(priority.rawValue)" }
    if availableDate != .second(0) { text += " at \(availableDate.step)" }
    if let uniqueKey { text += " key '\(uniqueKey)'" }
    if let uniqueUntil { text += " unique until \(uniqueUntil.step)" }
    if let latestDate { text += " at the latest at \(latestDate.step)" }
    if let expiryDate { text += " expires at \(expiryDate.step)" }
    if let orderKey { text += " order '\(orderKey)'\(holdsOrder ? ", which it holds" : "")" }
    text += dependencies.step
    if !conditions.isEmpty { text += " requires \(conditions.sorted().map(\.rawValue))" }
    return text
  }
}

extension TaskDependencies {
  /// The parts of the text, or that there is none.
  var summary: String {
    let step = step
    return step.isEmpty ? "none" : String(step.drop { $0 == "," || $0 == " " })
  }

  /// What was chosen, and what has happened since, each with a space before it.
  var step: String {
    var text = ""
    if !tasks.isEmpty || rule != .allSucceeded {
      text += " after \(tasks.map(\.number).sorted()), \(rule)"
    }
    if let follower { text += " before \(follower.number)" }
    if !failed.isEmpty {
      let failed = failed.sorted { $0.key < $1.key }.map { "\($0.key.number) \($0.value)" }
      text += failed.count > 20 ? " noting \(failed.count) tasks" : " noting \(failed)"
    }
    if let cause { text += " because of \(cause.number)" }
    return text + batch.step
  }
}

extension [TaskRecord] {
  var step: String {
    count > 20
      ? "\(count) tasks" : "[" + map { "\($0.id.number) \($0.state)" }.joined(separator: ", ") + "]"
  }
}

extension Claim {
  var step: String {
    let list = tasks.count > 20 ? ["\(tasks.count) tasks"] : tasks.map(\.lease.step)
    return "[\(list.joined(separator: ", "))], next date \(nextDate?.step ?? "none")"
  }
}

extension TaskFilter {
  var step: String {
    var criteria: [String] = []
    func list<Element>(_ set: Set<Element>, _ text: (Element) -> String) -> String {
      "[" + set.map(text).sorted().joined(separator: ", ") + "]"
    }
    if let ids { criteria.append("ids \(list(ids) { "\($0.number)" })") }
    if let names { criteria.append("names \(list(names) { $0 })") }
    if !excludedNames.isEmpty { criteria.append("names but \(list(excludedNames) { $0 })") }
    if let states { criteria.append("states \(list(states) { "\($0)" })") }
    if let uniqueKeys { criteria.append("keys \(list(uniqueKeys) { $0 })") }
    if let orderKeys { criteria.append("order keys \(list(orderKeys) { $0 })") }
    if let unmetBy { criteria.append("unmet by \(list(unmetBy) { $0.rawValue })") }
    if let tags { criteria.append("tags \(list(tags) { $0 })") }
    if let isPostponed { criteria.append(isPostponed ? "put off" : "not put off") }
    if let remembers { criteria.append(remembers ? "remembering" : "remembering nothing") }
    if let availableDates {
      let (from, to) = (availableDates.lowerBound.step, availableDates.upperBound.step)
      criteria.append("available from \(from) to before \(to)")
    }
    return criteria.isEmpty ? "all tasks" : criteria.joined(separator: ", ")
  }
}
