// The part of Foundation without locales and time zones, where the system has it by itself.
#if canImport(FoundationEssentials)
@_exported public import FoundationEssentials
#else
@_exported public import Foundation
#endif
