import Foundation

/// Reads an input as a file, and traps if the result is inconsistent.
///
/// libFuzzer calls this function with each input. The first byte states the form of the others:
///
/// - Even: the bytes of a file.
/// - Odd: the bodies of lines. Each body gets its number and the right checksum, so that the fuzzer
///   reaches the code behind the checksum. A `+` before a body means that the batch continues, a
///   `!` that all lines before it are durable.
///
/// If the first byte is greater than 1, the file is also read in parts of four times that number of
/// bytes.
@_cdecl("LLVMFuzzerTestOneInput")
public func fuzzOneInput(_ start: UnsafePointer<UInt8>, _ count: Int) -> CInt {
  let input = unsafe Array(UnsafeBufferPointer(start: start, count: count))
  guard let mode = input.first else { return 0 }
  let file = mode & 1 == 0 ? Array(input.dropFirst()) : mended(input.dropFirst())
  check(file)
  if mode > 1 { checkInParts(file, of: Int(mode) * 4) }
  return 0
}

private func mended(_ bodies: ArraySlice<UInt8>) -> [UInt8] {
  var file: [UInt8] = []
  var durable: UInt64 = 0
  var isContinued = false
  for (number, body) in bodies.split(separator: 0x0A).enumerated() {
    let marks = body.prefix(2).prefix { $0 == UInt8(ascii: "+") || $0 == UInt8(ascii: "!") }
    if !isContinued, marks.contains(UInt8(ascii: "!")) { durable = UInt64(number) }
    isContinued = marks.contains(UInt8(ascii: "+"))
    JournalLine.append(
      JournalBody(body.dropFirst(marks.count)),
      sequence: UInt64(number),
      firstUnsynced: durable,
      isContinued: isContinued,
      to: &file
    )
  }
  return file
}

private func check(_ file: [UInt8]) {
  let contents: JournalContents
  do throws(JournalProblem) {
    contents = try JournalReader.read(file)
  } catch {
    if case .damaged(let line, let byte, _) = error {
      precondition(line == 1 + file[..<byte].count { $0 == 0x0A }, "the byte is not in the line")
    }
    return
  }
  precondition(contents.goodSize <= file.count && contents.unsyncedOffset < contents.goodSize)
  precondition(contents.unsyncedOffset == 0 || file[contents.unsyncedOffset - 1] == 0x0A)
  precondition(file[contents.goodSize - 1] == 0x0A)
  let broken = contents.table.brokenInvariants()
  precondition(broken.isEmpty, "\(broken)")
  // This takes half of the time, so every fourth input is enough.
  if file.count % 4 == 0 { checkAgain(contents) }
}

/// Reads the file in parts, like a large file, and as a whole, and compares the results.
private func checkInParts(_ file: [UInt8], of size: Int) {
  func read(_ partSize: Int) -> Result<JournalContents, JournalProblem> {
    do throws(JournalProblem) {
      return .success(try JournalReader.read(JournalSource(file), partSize: partSize))
    } catch {
      return .failure(error)
    }
  }
  switch (read(size), read(max(1, file.count))) {
  case (.success(let parts), .success(let whole)):
    precondition(parts.nextSequence == whole.nextSequence && parts.goodSize == whole.goodSize)
    precondition(parts.unsyncedOffset == whole.unsyncedOffset && parts.isSealed == whole.isSealed)
    precondition(parts.table.taskCount == whole.table.taskCount)
  case (.failure(let parts), .failure(let whole)): precondition(parts == whole)
  case (let parts, let whole): preconditionFailure("\(parts) in parts, \(whole) as a whole")
  }
}

/// Writes the tasks as a compaction does, and reads them back.
private func checkAgain(_ contents: JournalContents) {
  do {
    let tasks = try contents.table.contentLines()
    var file: [UInt8] = []
    let header = JournalEntry.header(version: 1, generation: contents.generation)
    let bodies = [try JournalBody(header)] + tasks.map { JournalBody(Array($0.utf8)[...]) }
    for (number, body) in bodies.enumerated() {
      JournalLine.append(
        body,
        sequence: UInt64(number),
        firstUnsynced: UInt64(number),
        isContinued: false,
        to: &file
      )
    }
    let found = try JournalReader.read(file).table
    let isSame = try found.contentLines() == tasks
    precondition(isSame || found.hasExtremes, "tasks have changed")
  } catch {
    precondition(contents.table.hasExtremes, "\(error)")
  }
}
