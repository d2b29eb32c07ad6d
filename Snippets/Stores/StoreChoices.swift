//! A queue over each of the stores; build it with `--traits SQLite,PostgreSQL`.

#if SQLite && PostgreSQL
import Foundation
import SteadfastPostgreSQL
import SteadfastQueue
import SteadfastSQLite

let url = FileManager.default.temporaryDirectory.appending(path: "StoreChoices-\(UUID())")

// snippet.queues
let inMemory = TaskQueue()
let inFile = TaskQueue(persistence: .jsonFile(at: url))
let inDatabase = TaskQueue(persistence: .sqlite(at: url))
// For several processes:
let shared = TaskQueue(
  persistence: .sqlite(at: url, sharing: StoreSharing())
)
// For several machines:
let onMachines = TaskQueue(
  persistence: .postgreSQL("host=db.example.com dbname=app")
)
// snippet.end

func choose() {
  do {
    // snippet.sqlite
    let queue = TaskQueue(persistence: .sqlite(at: url))
    // snippet.end
    print(queue)
  }
  // snippet.postgresql
  let queue = TaskQueue(
    persistence: .postgreSQL("host=db.example.com dbname=app")
  )
  // snippet.end
  print(queue)
}
#else
print("build it with --traits SQLite,PostgreSQL")
#endif
