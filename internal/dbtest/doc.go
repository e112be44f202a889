// Package dbtest gives tests real database servers: PostgreSQL and MariaDB are started from temporary folders,
// SQLite is a file, and a user's own servers (SQL Server among them) are used where the environment names them.
//
// A test package that uses servers hands its run to [Main], which ends them:
//
//	func TestMain(m *testing.M) { dbtest.Main(m) }
//
//	func TestStore(t *testing.T) {
//		dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
//			db := e.NewDatabase(t).Open(t)
//			…
//		})
//	}
//
// A shared server ([Postgres], [MariaDB]) is started once for a test binary, on first use; each test takes a database
// of its own from it. A private server ([NewPostgres], [NewMariaDB]) may be stopped and killed. A replica set
// ([NewPostgresSet], [NewMariaDBSet]) is private too, and its servers replicate, fail over and rejoin. Servers listen on
// 127.0.0.1 only, run as the unprivileged account of their package when the tests run as root, and keep their data
// on a memory file system where there is room. They never outlive the test binary, however it ends: the kernel
// signals them when its process dies. Folders that such a death leaves behind are removed by the next run.
//
// These variables are read:
//
//   - SHARDWAY_TEST_POSTGRES, SHARDWAY_TEST_MYSQL, SHARDWAY_TEST_SQLSERVER: the URL of an administrator's login on a
//     server to use instead of starting one, such as mysql://root:secret@127.0.0.1:3306/. Databases and logins are
//     created there and dropped again.
//   - SHARDWAY_TEST_REQUIRE: engines, separated by commas, whose absence fails tests instead of skipping them.
//   - SHARDWAY_TEST_DIR: the folder for servers' files. Unset: /dev/shm if it is writable and has room, else the
//     system's temporary folder.
//
// MongoDB is apart, because it speaks no SQL: [Mongo] runs FerretDB, which is built from a module of its own, or uses
// the deployment that SHARDWAY_TEST_MONGODB names, which [RealMongo] demands.
//
// The package never touches a server that the system runs, and never reads such a server's configuration.
package dbtest
