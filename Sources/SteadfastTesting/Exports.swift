@_exported public import SteadfastQueue
