/// The store of a queue, and the layers that the queue may have put in front of it.
struct QueueStore: Sendable {
  /// What takes the queue's calls.
  let front: any Persistence
  /// The queue's part of the store, if the queue belongs to a group.
  let group: GroupStore?
  /// What makes calls again, if the store's errors may be transient.
  let patientStore: PatientStore?
  /// The error if the queue's name, its configuration or the store's sharing is invalid.
  private let validity: Result<Void, TaskQueueError>

  /// Takes the store that the application has given.
  init(
    _ persistence: some Persistence,
    ofQueue name: String,
    _ configuration: TaskQueueConfiguration,
    patience: @autoclosure () -> StorePatience
  ) {
    validity = Result { () throws(TaskQueueError) in
      if name.isEmpty {
        throw TaskQueueError(.invalidArgument, "the queue's name is empty; give it a name")
      }
      try configuration.validate()
      try persistence.sharing?.validate()
    }
    group = persistence as? GroupStore
    patientStore =
      persistence.mayFailTransiently ? PatientStore(persistence, patience()) : nil
    front = patientStore ?? persistence
  }

  /// Throws what keeps the queue from opening its store.
  func checkCanOpen() throws(TaskQueueError) { try validity.get() }
}
