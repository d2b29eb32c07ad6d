/// A sorted list, from which any element can be removed.
///
/// Operations on the first or last element take O(1); all others take O(log n).
///
/// The list consists of sorted arrays (pieces) of limited size. No operation moves more elements
/// than one or two pieces contain, so none takes long, however many elements there are. The first
/// piece is stored inline because most lists are short. A list must not contain equal elements.
///
/// A binary heap would be simpler, but it can't find an element in the middle, or list the elements
/// in order. It isn't faster, either. Adding and removing one element takes, in nanoseconds on one
/// machine:
///
/// | elements | ordered dates: list | heap | random dates: list | heap |
/// | --- | --- | --- | --- | --- |
/// | 1 | 8 | 10 | 10 | 13 |
/// | 100 | 8 | 43 | 19 | 29 |
/// | 10,000 | 12 | 85 | 30 | 62 |
/// | 1,000,000 | 29 | 150 | 600 | 450 |
struct SortedList<Element: Comparable & Sendable>: Sendable {
  /// A sorted array of consecutive elements that is not the first one.
  private struct Piece: Sendable {
    /// A value that is greater than all elements of earlier pieces, and at most the first element
    /// of this piece.
    let start: Element
    var elements: [Element]
  }

  /// The maximum number of elements in a piece; a larger piece is split.
  static var maxPieceSize: Int { 256 }
  /// A piece below this size is merged with a neighbor if the result is at most half full.
  private static var minPieceSize: Int { maxPieceSize / 4 }

  private var firstPiece: [Element] = []
  /// The index of the first element in `firstPiece` that has not been removed.
  private var head = 0
  private var pieces: [Piece] = []
  /// The index in `pieces` of the first piece that is not empty.
  ///
  /// The pieces before this index are empty: each of them became the first piece, or lost its last
  /// element.
  private var pieceHead = 0
  private(set) var count = 0

  var isEmpty: Bool { count == 0 }
  /// The number of pieces, including the first.
  var pieceCount: Int { 1 + pieces.count - pieceHead }
  var first: Element? { head < firstPiece.count ? firstPiece[head] : nil }

  // MARK: Inserting

  mutating func insert(_ element: Element) {
    count += 1
    if pieceHead == pieces.count {
      insertIntoOnlyPiece(element)
    } else if let last = pieces[pieces.count - 1].elements.last, last < element {
      append(element)
    } else if element < pieces[pieceHead].start {
      insertIntoFirstPiece(element)
    } else {
      insert(element, intoPiece: piece(of: element))
    }
  }

  private mutating func insertIntoOnlyPiece(_ element: Element) {
    guard let last = firstPiece.last, element < last else {
      if firstPiece.count < Self.maxPieceSize { return firstPiece.append(element) }
      if head > Self.maxPieceSize / 2 {
        dropRemovedElements()
        return firstPiece.append(element)
      }
      return insertPiece(Self.piece(from: [element]), at: pieces.count)
    }
    insertIntoFirstPiece(element)
  }

  /// Adds an element after all others.
  private mutating func append(_ element: Element) {
    let last = pieces.count - 1
    guard pieces[last].elements.count == Self.maxPieceSize else {
      return pieces[last].elements.append(element)
    }
    insertPiece(Self.piece(from: [element]), at: pieces.count)
  }

  private mutating func insertIntoFirstPiece(_ element: Element) {
    let index = firstPiece.firstIndex(notBefore: element, in: head..<firstPiece.count)
    if head > 0, index - head <= firstPiece.count - index {
      // The elements before the new element move towards the start of the array, where space is
      // free.
      for place in head..<index { firstPiece[place - 1] = firstPiece[place] }
      head -= 1
      firstPiece[index - 1] = element
    } else {
      firstPiece.insert(element, at: index)
    }
    guard firstPiece.count - head > Self.maxPieceSize else { return }
    dropRemovedElements()
    let middle = firstPiece.count / 2
    insertPiece(Self.piece(from: firstPiece[middle...]), at: pieceHead)
    firstPiece.removeSubrange(middle...)
  }

  private mutating func insert(_ element: Element, intoPiece index: Int) {
    let place = pieces[index].elements.firstIndex(notBefore: element)
    pieces[index].elements.insert(element, at: place)
    let count = pieces[index].elements.count
    guard count > Self.maxPieceSize else { return }
    // Near the end of the list, most elements are inserted almost in order. So a split of the last
    // piece leaves its first part nearly full.
    let middle = index == pieces.count - 1 ? count - count / 8 : count / 2
    insertPiece(Self.piece(from: pieces[index].elements[middle...]), at: index + 1)
    pieces[index].elements.removeSubrange(middle...)
  }

  private mutating func insertPiece(_ piece: Piece, at index: Int) {
    guard index == pieceHead, pieceHead > 0 else { return pieces.insert(piece, at: index) }
    pieceHead -= 1
    pieces[pieceHead] = piece
  }

  private static func piece(from elements: ArraySlice<Element>) -> Piece {
    var copy: [Element] = []
    copy.reserveCapacity(maxPieceSize + 1)
    copy += elements
    return Piece(start: copy[0], elements: copy)
  }

  // MARK: Removing

  @discardableResult
  mutating func popFirst() -> Element? {
    guard head < firstPiece.count else { return nil }
    let element = firstPiece[head]
    removeFromFirstPiece(at: head)
    return element
  }

  /// Removes an element.
  ///
  /// - Returns: Whether the list contained the element.
  @discardableResult
  mutating func remove(_ element: Element) -> Bool {
    guard pieceHead < pieces.count, pieces[pieceHead].start <= element else {
      let index = firstPiece.firstIndex(notBefore: element, in: head..<firstPiece.count)
      guard index < firstPiece.count, firstPiece[index] == element else { return false }
      removeFromFirstPiece(at: index)
      return true
    }
    let piece = piece(of: element)
    let index = pieces[piece].elements.firstIndex(notBefore: element)
    guard index < pieces[piece].elements.count, pieces[piece].elements[index] == element else {
      return false
    }
    count -= 1
    pieces[piece].elements.remove(at: index)
    joinIfSmall(piece)
    return true
  }

  private mutating func removeFromFirstPiece(at index: Int) {
    count -= 1
    if index - head < firstPiece.count - index {
      for place in stride(from: index, to: head, by: -1) {
        firstPiece[place] = firstPiece[place - 1]
      }
      head += 1
    } else {
      firstPiece.remove(at: index)
    }
    guard head == firstPiece.count else { return }
    head = 0
    guard pieceHead < pieces.count else { return firstPiece.removeAll(keepingCapacity: true) }
    firstPiece = pieces[pieceHead].elements
    dropPiece(pieceHead)
  }

  private mutating func dropRemovedElements() {
    firstPiece.removeFirst(head)
    head = 0
  }

  private mutating func joinIfSmall(_ piece: Int) {
    let size = pieces[piece].elements.count
    guard size < Self.minPieceSize else { return }
    if size == 0 { return dropPiece(piece) }
    func isSmall(_ neighbour: Int) -> Bool {
      size + pieces[neighbour].elements.count <= Self.maxPieceSize / 2
    }
    if piece + 1 < pieces.count, isSmall(piece + 1) {
      joinPiece(piece, with: piece + 1)
    } else if piece > pieceHead, isSmall(piece - 1) {
      joinPiece(piece - 1, with: piece)
    }
  }

  private mutating func joinPiece(_ piece: Int, with next: Int) {
    pieces[piece].elements += pieces[next].elements
    pieces.remove(at: next)
  }

  private mutating func dropPiece(_ piece: Int) {
    guard piece == pieceHead else {
      pieces.remove(at: piece)
      return
    }
    pieces[piece].elements = []
    pieceHead += 1
    guard pieceHead == pieces.count || pieceHead > 64 && pieceHead * 2 > pieces.count else {
      return
    }
    pieces.removeFirst(pieceHead)
    pieceHead = 0
  }

  // MARK: Reading

  /// Returns whether the list contains an element.
  func contains(_ element: Element) -> Bool {
    let elements =
      pieceHead < pieces.count && pieces[pieceHead].start <= element
      ? pieces[piece(of: element)].elements[...] : firstPiece[head...]
    let next = elements.firstIndex(after: element)
    return next > elements.startIndex && elements[next - 1] == element
  }

  /// Returns up to `limit` elements in order: those after `element`, or those from the start if
  /// `element` is `nil`.
  ///
  /// This takes O(k + log n) for k elements.
  func elements(after element: Element? = nil, limit: Int = .max) -> [Element] {
    var found: [Element] = []
    var next = pieceHead
    if let element, pieceHead < pieces.count, pieces[pieceHead].start <= element {
      next = piece(of: element)
    } else {
      let rest = firstPiece[head...]
      found += rest[(element.map(rest.firstIndex(after:)) ?? head)...].prefix(limit)
    }
    while found.count < limit, next < pieces.count {
      let elements = pieces[next].elements
      // If any elements were found, all elements of this piece come after them.
      let start = found.isEmpty ? element.map(elements[...].firstIndex(after:)) ?? 0 : 0
      found += elements[start...].prefix(limit - found.count)
      next += 1
    }
    return found
  }

  /// Returns up to `limit` elements in reverse order: those before `element`, or those from the end
  /// if `element` is `nil`.
  ///
  /// This takes O(k + log n) for k elements.
  func reversedElements(before element: Element? = nil, limit: Int = .max) -> [Element] {
    var found: [Element] = []
    var next = pieces.count - 1
    if let element {
      let isInFirst = pieceHead == pieces.count || element < pieces[pieceHead].start
      next = isInFirst ? pieceHead - 1 : piece(of: element)
    }
    while found.count < limit, next >= pieceHead {
      let elements = pieces[next].elements
      // If any elements were found, all elements of this piece come before them.
      let end = found.isEmpty ? element.map { elements.firstIndex(notBefore: $0) } : nil
      found += elements[..<(end ?? elements.count)].suffix(limit - found.count).reversed()
      next -= 1
    }
    guard found.count < limit else { return found }
    let end =
      found.isEmpty
      ? element.map { firstPiece.firstIndex(notBefore: $0, in: head..<firstPiece.count) } : nil
    return found
      + firstPiece[head..<(end ?? firstPiece.count)].suffix(limit - found.count).reversed()
  }

  /// Returns the number of elements that are not after `bound`.
  ///
  /// This takes O(n / m + log m) for n elements in pieces of at most m.
  func count(upTo bound: Element) -> Int {
    guard pieceHead < pieces.count, pieces[pieceHead].start <= bound else {
      return firstPiece[head...].firstIndex(after: bound) - head
    }
    let last = piece(of: bound)
    let before = pieces[pieceHead..<last].reduce(firstPiece.count - head) {
      $0 + $1.elements.count
    }
    return before + pieces[last].elements[...].firstIndex(after: bound)
  }

  /// Returns the index of the piece that an element belongs to; the element must not belong to the
  /// first piece.
  private func piece(of element: Element) -> Int {
    var (low, high) = (pieceHead, pieces.count)
    while high - low > 1 {
      let middle = (low + high) / 2
      if element < pieces[middle].start { high = middle } else { low = middle }
    }
    return low
  }
}

extension Array where Element: Comparable {
  /// Returns the index of the first element of a sorted array that is not before `element`.
  fileprivate func firstIndex(notBefore element: Element, in range: Range<Int>? = nil) -> Int {
    var (low, high) = (range?.lowerBound ?? 0, range?.upperBound ?? count)
    while low < high {
      let middle = (low + high) / 2
      if self[middle] < element { low = middle + 1 } else { high = middle }
    }
    return low
  }
}

extension ArraySlice where Element: Comparable {
  /// Returns the index of the first element of a sorted array that is after `element`.
  fileprivate func firstIndex(after element: Element) -> Int {
    var (low, high) = (startIndex, endIndex)
    while low < high {
      let middle = (low + high) / 2
      if element < self[middle] { high = middle } else { low = middle + 1 }
    }
    return low
  }
}
