#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// What an update, a new task, or another store changes.
extension TaskRecord {
  /// Changes what an update names.
  ///
  /// Stores call this on ``TaskChange/update(_:_:)``.
  public mutating func apply(_ update: TaskUpdate) {
    var definition = shared.value
    if let payload = update.payload { definition.payload = payload }
    if let priority = update.priority { definition.priority = priority }
    if let maxRetries = update.maxRetries { definition.maxRetries = maxRetries }
    if let usesBackoff = update.usesBackoff { definition.usesBackoff = usesBackoff }
    var extras = definition.extras.value
    if let timeLimit = update.timeLimit { extras.timeLimit = timeLimit }
    if let expiryDate = update.expiryDate { extras.expiryDate = expiryDate }
    if let tags = update.tags { extras.tags = tags }
    definition.extras.value = extras
    shared = SharedDefinition(definition)
  }

  /// Takes over the payload, the options and the date of a new task with the same key.
  ///
  /// Stores call this on ``TaskChange/insert(_:onDuplicate:)`` with ``UniquePolicy/replace``, if
  /// this task is not running. ``UniquePolicy/replace`` says what becomes of the date. The store
  /// itself moves the task in line. The task keeps its order key and its place in that order, and
  /// waits for the tasks that it waited for.
  ///
  /// - Returns: Whether the task goes behind its equals: its priority or its date becomes another
  ///   one, or it was parked or suspended.
  public mutating func takeOver(_ new: TaskRecord) -> Bool {
    let before = (state, priority, availableDate)
    var definition = shared.value
    let old = definition.extras.value
    definition.payload = new.payload
    definition.maxRetries = new.maxRetries
    definition.usesBackoff = new.usesBackoff
    definition.priority = new.priority
    var extras = new.shared.value.extras.value
    extras.latestDate = old.latestDate ?? extras.latestDate
    extras.prerequisites.value = Prerequisites(
      orderKey: orderKey,
      orderNumber: orderNumber,
      holdsOrder: holdsOrder,
      conditions: new.conditions,
      dependencies: Rare(dependencies)
    )
    definition.extras.value = extras
    shared = SharedDefinition(definition)
    if state == .suspended { wake() }
    if state == .parked { state = .waiting }
    let isAtOnce = new.availableDate <= new.createdDate
    let takesDate =
      isPostponed
      ? new.availableDate > availableDate : !isAtOnce || new.availableDate < availableDate
    if takesDate {
      availableDate = new.availableDate
      countedFrom = new.countedFrom
    }
    if !isPostponed, !isAtOnce, let latest = extras.latestDate, latest < availableDate {
      availableDate = latest
      countedFrom = createdDate
    }
    return (state, priority, availableDate) != before
  }

  /// Takes the place of the holder of its key, which has failed.
  ///
  /// Stores call this for the successor on
  /// ``TaskChange/retry(_:availableDate:retryCount:failure:countedFrom:)`` of the holder. `holder`
  /// is the holder after that change. The successor gets its retries and its failures, and is not
  /// performed before the retry's date.
  public mutating func takePlace(of holder: TaskRecord) {
    keyRole = .holder
    let origin = countedFrom
    failureState = holder.failureState
    if availableDate > holder.availableDate {
      countedFrom = origin
    } else {
      availableDate = holder.availableDate
      countedFrom = holder.countedFrom
    }
  }
}

extension TaskRecord {
  /// Returns the same task with its payload in another form.
  func replacing(payload: StoredPayload) -> TaskRecord {
    var definition = shared.value
    definition.payload = payload
    var record = self
    record.shared = SharedDefinition(definition)
    return record
  }

  /// Returns the same task in another queue.
  package func replacing(queue: String) -> TaskRecord {
    var definition = shared.value
    definition.extras.value.queue = queue
    var record = self
    record.shared = SharedDefinition(definition)
    return record
  }

  /// Returns the same task with another ID.
  func replacing(id: TaskID) -> TaskRecord {
    var record = self
    record.shared = SharedDefinition(shared.value.replacing(id: id))
    return record
  }
}
