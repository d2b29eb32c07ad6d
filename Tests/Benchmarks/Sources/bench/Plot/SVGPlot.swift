#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Android)
import Android
#else
import Darwin
#endif

/// Lines over powers of two, on two logarithmic scales, as the text of an SVG image.
struct SVGPlot {
  struct Line {
    let name: String
    let color: String
    /// The values, one for each number on the horizontal scale.
    let values: [Double]
  }

  let title: String
  /// The unit of the horizontal scale.
  let unit: String
  let numbers: [Int]
  let lines: [Line]

  static let width = 430.0
  static let height = 330.0
  private static let (left, right, top, bottom) = (62.0, 20.0, 34.0, 44.0)

  /// The powers of ten that enclose all values.
  private var range: (lowest: Int, highest: Int) {
    let values = lines.flatMap(\.values).filter { $0 > 0 }
    var (lowest, highest) = (0, 0)
    while powerOfTen(lowest) > values.min() ?? 1 { lowest -= 1 }
    while powerOfTen(lowest + 1) < values.min() ?? 1 { lowest += 1 }
    while powerOfTen(highest) < values.max() ?? 1 { highest += 1 }
    return (lowest, max(highest, lowest + 1))
  }

  /// Returns the plot as a part of an image, with its left edge at `x`.
  func svgText(atX x: Double) -> String {
    let plotWidth = Self.width - Self.left - Self.right
    let plotHeight = Self.height - Self.top - Self.bottom
    let (lowest, highest) = range
    func xPosition(of index: Int) -> Double {
      Self.left + plotWidth * Double(index) / Double(max(numbers.count - 1, 1))
    }
    func yPosition(of value: Double) -> Double {
      let share = (log10(value) - Double(lowest)) / Double(highest - lowest)
      return Self.top + plotHeight * (1 - share)
    }
    var text = "<g transform=\"translate(\(decimal(x, digits: 0)),0)\">\n"
    text += textElement(title, x: Self.left, y: 20, "font-weight=\"bold\"")
    for exponent in lowest...highest {
      let y = yPosition(of: powerOfTen(exponent))
      text += lineElement("#dddddd", [(Self.left, y), (Self.left + plotWidth, y)], width: 1)
      let number = scaleLabel(forExponent: exponent)
      text += textElement(number, x: Self.left - 8, y: y + 4, "text-anchor=\"end\"")
    }
    for (index, number) in numbers.enumerated() {
      let y = Self.height - Self.bottom + 18
      text += textElement(String(number), x: xPosition(of: index), y: y, "text-anchor=\"middle\"")
    }
    let middle = Self.left + plotWidth / 2
    text += textElement(unit, x: middle, y: Self.height - 8, "text-anchor=\"middle\"")
    for line in lines {
      let points = line.values.enumerated().map { (xPosition(of: $0), yPosition(of: $1)) }
      text += lineElement(line.color, points, width: 2)
    }
    return text + "</g>\n"
  }

  /// Returns an image of plots side by side, with a legend below.
  static func image(of plots: [SVGPlot]) -> String {
    let names = plots.first?.lines ?? []
    let (rowHeight, width) = (20.0, Double(plots.count) * Self.width)
    let height = Self.height + rowHeight * Double(names.count) + 10
    var text = """
      <svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 \(decimal(width, digits: 0)) \
      \(decimal(height, digits: 0))" font-family="sans-serif" font-size="12" fill="#333333">
      <rect width="100%" height="100%" fill="#ffffff"/>

      """
    for (index, plot) in plots.enumerated() {
      text += plot.svgText(atX: Double(index) * Self.width)
    }
    for (index, line) in names.enumerated() {
      let y = Self.height + rowHeight * Double(index) + 12
      text += lineElement(line.color, [(left, y - 4), (left + 30, y - 4)], width: 2)
      text += textElement(line.name, x: left + 40, y: y, "")
    }
    return text + "</svg>\n"
  }

  private func scaleLabel(forExponent exponent: Int) -> String {
    switch exponent {
    case ..<0: "0." + String(repeating: "0", count: -exponent - 1) + "1"
    case ..<4: "1" + String(repeating: "0", count: exponent)
    case ..<6: "1" + String(repeating: "0", count: exponent - 3) + "k"
    default: "1" + String(repeating: "0", count: exponent - 6) + "M"
    }
  }
}

private func powerOfTen(_ exponent: Int) -> Double { pow(10, Double(exponent)) }

private func textElement(_ text: String, x: Double, y: Double, _ attributes: String) -> String {
  "<text x=\"\(decimal(x, digits: 1))\" y=\"\(decimal(y, digits: 1))\" \(attributes)>\(text)</text>\n"
}

private func lineElement(
  _ color: String,
  _ points: [(x: Double, y: Double)],
  width: Int
) -> String {
  let places = points.map { decimal($0.x, digits: 1) + "," + decimal($0.y, digits: 1) }
  return "<polyline fill=\"none\" stroke=\"\(color)\" stroke-width=\"\(width)\" points=\""
    + places.joined(separator: " ") + "\"/>\n"
}
