package dialect

import "strconv"

// decimal writes a number with an end mark, so that no number is the beginning
// of another.
func decimal(n int64) string { return strconv.FormatInt(n, 10) + "." }

// postgresCodes are SQLSTATE codes and classes of codes.
var postgresCodes = codes{read: sqlState, classes: map[string]Class{
	"08":    Unavailable, // connection exceptions
	"0A000": Outdated,    // mostly: cached plan must not change result type
	"26000": Outdated,    // a prepared statement that a pooler has lost
	"23505": Duplicate,
	"25006": Unavailable, // read-only transaction: a standby
	"28":    Unavailable, // login refused
	"3D000": Unavailable, // no such database
	"3F000": NoTable,     // no such schema
	"40001": Transient,   // serialization failure
	"40P01": Transient,   // deadlock
	"42P01": NoTable,
	"42501": Unavailable, // missing rights
	"53300": Unavailable, // too many connections
	"55P03": Transient,   // lock not available
	"57P01": Lost,        // the server ended this session
	"57P02": Lost,
	"57P03": Unavailable, // starting or shutting down
	"57P05": Lost,
}}

// mysqlCodes are error numbers of MySQL and MariaDB.
var mysqlCodes = codes{read: numberField, classes: map[string]Class{
	"1020.": Transient, // row changed since it was read
	"1205.": Transient, // lock wait timeout
	"1213.": Transient, // deadlock
	"1062.": Duplicate,
	"1146.": NoTable,
	"1040.": Unavailable, // too many connections
	"1044.": Unavailable, // no access to the database
	"1045.": Unavailable, // login refused
	"1049.": Unavailable, // no such database
	"1129.": Unavailable, // host blocked
	"1130.": Unavailable, // host not allowed
	"1142.": Unavailable, // right missing on a table
	"1143.": Unavailable, // right missing on a column
	"1203.": Unavailable, // too many connections of this user
	"1226.": Unavailable, // limit of this user reached
	"1227.": Unavailable, // right missing
	"1290.": Unavailable, // read-only
	"1370.": Unavailable, // right missing on a routine
	"1698.": Unavailable, // login refused
	"1792.": Unavailable, // read-only transaction
	"1820.": Unavailable, // password must be changed
	"1836.": Unavailable, // read-only
	"1862.": Unavailable, // password has expired
	"3118.": Unavailable, // account locked (MySQL)
	"4151.": Unavailable, // account locked (MariaDB)
	"1053.": Lost,        // server is shutting down
	"1927.": Lost,        // connection was killed
}}

// sqlserverCodes are error numbers of SQL Server and Azure SQL. 33557097 is
// what Babelfish says for 1222; 51222 is our own, for a lock not granted.
var sqlserverCodes = codes{read: errorNumber, classes: map[string]Class{
	"1205.":     Transient,   // deadlock
	"1222.":     Transient,   // lock timeout
	"3960.":     Transient,   // snapshot conflict
	"33557097.": Transient,   // lock timeout
	"51222.":    Transient,   // application lock not granted
	"2601.":     Duplicate,   // unique index
	"2627.":     Duplicate,   // unique constraint
	"208.":      NoTable,     // no such object
	"229.":      Unavailable, // right missing on an object
	"230.":      Unavailable, // right missing on a column
	"262.":      Unavailable, // right missing in the database
	"911.":      Unavailable, // no such database
	"916.":      Unavailable, // no access to the database
	"2760.":     Unavailable, // no such schema, or no right to it
	"3906.":     Unavailable, // database is read-only
	"4060.":     Unavailable, // database cannot be opened
	"10928.":    Unavailable, // resource limit of Azure SQL
	"10929.":    Unavailable, // resource limit of Azure SQL
	"18456.":    Unavailable, // login refused
	"18486.":    Unavailable, // login locked
	"18487.":    Unavailable, // password has expired
	"18488.":    Unavailable, // password must be changed
	"40197.":    Unavailable, // Azure SQL is moving the database
	"40501.":    Unavailable, // Azure SQL is busy
	"40613.":    Unavailable, // database not available now
	"49918.":    Unavailable, // not enough resources
	"49919.":    Unavailable, // not enough resources
	"49920.":    Unavailable, // not enough resources
}}

// sqliteCodes are result codes: the primary code alone, or followed by the
// extended code.
var sqliteCodes = codes{read: resultCode, noTable: "no such table", classes: map[string]Class{
	"5.":       Transient,   // busy: another connection writes
	"6.":       Transient,   // locked
	"19.1555.": Duplicate,   // primary key
	"19.2067.": Duplicate,   // unique index
	"3.":       Unavailable, // no permission
	"8.":       Unavailable, // read-only file
	"14.":      Unavailable, // file cannot be opened
	"23.":      Unavailable, // not authorized
	"26.":      Unavailable, // not a database file
}}
