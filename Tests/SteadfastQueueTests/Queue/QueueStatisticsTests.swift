import Testing

@testable import SteadfastQueue

@Suite struct QueueStatisticsTests {
  @Test func `printed times are rounded`() {
    var times = QueueStatistics.Times()
    #expect("\(times)" == "0.0 ms on average, 0.0 ms at most")
    times.add(.nanoseconds(70_784))
    times.add(.nanoseconds(166_264_369))
    #expect("\(times)" == "83.168 ms on average, 166.264 ms at most")
    times.add(.seconds(90.123456))
    #expect("\(times)" == "30.097 s on average, 90.123 s at most")
  }
}
