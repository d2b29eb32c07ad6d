import Foundation

@testable import SteadfastQueue

/// Writes files that tests have made at random, and their contents as JSON.
///
/// `STEADFAST_FILES` is the path of the folder; without it, nothing is written. Later,
/// `Tests/EndToEnd/read_queue_file.py --files FOLDER` reads the files, and compares the contents.
enum ExportedFile {
  static func write(_ bytes: [UInt8], named name: String) throws {
    guard let path = ProcessInfo.processInfo.environment["STEADFAST_FILES"] else { return }
    let url = URL(filePath: path).appending(path: name)
    let tasks = try JournalReader.read(bytes).table.contentsForPythonReader()
    try Data(bytes).write(to: url.appendingPathExtension("jsonl"))
    try JSONSerialization.data(withJSONObject: tasks)
      .write(to: url.appendingPathExtension("tasks.json"))
  }
}
