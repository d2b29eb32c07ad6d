@_exported public import SteadfastRetry
