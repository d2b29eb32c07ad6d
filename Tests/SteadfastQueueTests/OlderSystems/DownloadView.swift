/// A class on the main actor, like a view of downloads.
@MainActor final class DownloadView {
  private(set) var shown: [String] = []

  func show(_ url: String) {
    MainActor.preconditionIsolated()
    shown.append(url)
  }
}
