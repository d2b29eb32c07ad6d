import SteadfastQueue

@testable import SteadfastTesting

extension Mutant {
  static let commands = [
    Mutant("commands are not stored", breaks: "commands.stored", isShared: true) {
      $0.editShownRecords { $0.command = nil }
    },
    Mutant("a waiting task gets a command", breaks: "commands.stored", isShared: true) {
      $0.apply = { batch, table in
        let outcomes = table.apply(batch)
        return zip(batch, outcomes).map { change, outcome in
          guard case .command(let id, nil, let new) = change, outcome == .stale,
            let index = table.index(of: id), table.entries[index].record.command == nil
          else { return outcome }
          table.entries[index].record.command = new
          return .done
        }
      }
    },
    Mutant("the expected command is ignored", breaks: "commands.stored", isShared: true) {
      $0.apply = { batch, table in
        table.apply(
          batch.map { change in
            guard case .command(let id, _, let new) = change else { return change }
            return .command(id, from: table.record(of: id)?.command, to: new)
          }
        )
      }
    },
    Mutant("look-ups ignore commands", breaks: "commands.stored", isShared: true) {
      $0.editFilters { $0.hasCommand = nil }
    },
    Mutant("an attempt ends in spite of a command", breaks: "commands.refuse", isShared: true) {
      $0.apply = { batch, table in
        table.apply(batch.map { $0.knowingCommand(in: table) })
      }
    },
    Mutant("the carried-out command stays", breaks: "commands.refuse", isShared: true) {
      $0.editChangedTask { change, entry, before in
        if change.leaseEndedWithoutSuccess != nil { entry.record.command = before?.record.command }
      }
    },
    Mutant("a lease with a needless command is refused", breaks: "commands.refuse", isShared: true)
    {
      $0.apply = { batch, table in
        let before = table
        let outcomes = table.apply(batch)
        let needless = batch.firstIndex { change in
          guard let lease = change.leaseEndedWithoutSuccess, let command = lease.command else {
            return false
          }
          return before.record(of: lease.id).map { $0.command == nil && command == .pause } ?? false
        }
        guard let needless, outcomes[needless].isDone else { return outcomes }
        table = before
        return outcomes.map { _ in .stale }
      }
    },
    Mutant("a task with a command can't succeed", breaks: "commands.allow", isShared: true) {
      $0.refuseIfCommanded { change in change.end?.state == .succeeded }
    },
    Mutant("a claim with a command is not extended", breaks: "commands.allow", isShared: true) {
      $0.refuseIfCommanded { change in if case .extend = change { true } else { false } }
    },
    Mutant("a task with a command remembers nothing", breaks: "commands.allow", isShared: true) {
      $0.refuseIfCommanded { change in
        if case .memory(.remember) = change { true } else { false }
      }
    },
    Mutant("a command is lost with its claim", breaks: "commands.stay", isShared: true) {
      $0.editShownRecords { if $0.interruptionCount > 0 { $0.command = nil } }
    },
    Mutant("a waiting task keeps its command", breaks: "commands.stay", isShared: true) {
      $0.editChangedTask { change, entry, before in
        guard let before, before.record.state == .waiting, change.move?.kind == .reschedule else {
          return
        }
        entry.record.command = before.record.command
      }
    },
  ]
}

extension PlainStore.Behaviour {
  /// Refuses the changes of tasks with a command that the body selects.
  fileprivate mutating func refuseIfCommanded(
    _ isRefused: @escaping @Sendable (TaskChange) -> Bool
  ) {
    apply = { batch, table in
      batch.map { change in
        guard isRefused(change), let lease = change.lease,
          let command = table.record(of: lease.id)?.command
        else { return table.apply([change])[0] }
        return .commanded(command)
      }
    }
  }
}

extension TaskChange {
  /// The change with the command of its task in the table.
  fileprivate func knowingCommand(in table: ReferenceTable) -> TaskChange {
    guard var lease = leaseEndedWithoutSuccess else { return self }
    lease.command = table.record(of: lease.id)?.command
    return switch self {
    case .move(_, let move): .move(.claimed(lease), move)
    case .end(_, let end): .end(.claimed(lease), end)
    case .memory(.suspend(_, let date, let names, let origin)):
      .suspend(lease, until: date, awaiting: names, countedFrom: origin)
    default: self
    }
  }
}
