/// A view of downloads, on the main actor.
@MainActor final class DownloadView {
  private(set) var shown: [String] = []

  func show(_ url: String) {
    MainActor.preconditionIsolated()
    shown.append(url)
  }
}
