/// What shows downloads to people.
@MainActor final class DownloadView {
  private(set) var shown: [String] = []

  func show(_ url: String) {
    MainActor.preconditionIsolated()
    shown.append(url)
  }
}
