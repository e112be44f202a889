// Package predicate reads rules such as
//
//	host == "localhost" && tags.zone == "a"
//	role == "secondary" and staleness < "30s" and not (version startsWith "16.")
//	tags.rack in ["r1", "r2"] || rtt < 5
//
// and turns them into predicates of package selection. The syntax is that of expr (github.com/expr-lang/expr), cut down
// to what looks at one server: no functions, no variables, no arithmetic, nothing that loops or calls out. So a rule that
// parses ends, cannot fail, and allocates nothing.
//
// # Fields
//
//	address        text, such as "db1:5432"
//	host           text, in lower case
//	port           number
//	role, type     text: "primary", "secondary", "mongos", "standalone", …
//	kind           text, of the set: "ReplicaSet", "Sharded", "ReplicaSetWithPrimary", …
//	tags.NAME      text; "" if the server has no such tag; tags["a-b"] for names that are no words
//	rtt            time, the average round trip
//	staleness      time, how far a secondary is behind; 0 for all others
//	inFlight       number of operations of this process on the server
//	engine         text, such as "postgres"; "" where the monitoring does not tell
//	version        text of the engine, or ""
//	setName        text of a MongoDB replica set, or ""
//	setVersion     number
//	minWireVersion, maxWireVersion
//	               numbers, of MongoDB's protocol
//	upstream       text, the address of the server that this one follows, or ""
//	detached       true for a secondary that follows nobody
//	error          text of the last check's error, or ""
//
// A time is compared with milliseconds (rtt < 20) or with a length in quotes (staleness < "1m30s"). One that is not known
// is above every limit.
//
// # Operators
//
//	== != < <= > >=                      of two values of one kind; text is ordered by its bytes
//	&& || !, and or not                  of true and false
//	in, not in                           a list of constants; "zone" in tags asks for the tag itself
//	contains startsWith endsWith         of texts
//	matches                              a constant regular expression, in Go's syntax
//
// A constant that role or kind can never equal is refused, and constants for host and address are taken in lower case.
package predicate
