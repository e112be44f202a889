package dbtest

import "strings"

// quote writes a name as the engine quotes names.
func (e Engine) quote(name string) string {
	switch e {
	case EngineMySQL:
		return "`" + strings.ReplaceAll(name, "`", "``") + "`"
	case EngineSQLServer:
		return "[" + strings.ReplaceAll(name, "]", "]]") + "]"
	case EngineSQLite, EnginePostgres:
	}
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

// literal writes text as the engine writes string literals.
func (e Engine) literal(text string) string {
	if e == EngineMySQL {
		text = strings.ReplaceAll(text, `\`, `\\`)
	}
	return "'" + strings.ReplaceAll(text, "'", "''") + "'"
}

// createDatabase is the statement that creates a database with the server's defaults.
func (e Engine) createDatabase(name string) string { return "CREATE DATABASE " + e.quote(name) }

// dropDatabase drops a database; PostgreSQL ends the sessions on it first.
func (e Engine) dropDatabase(name string) string {
	drop := "DROP DATABASE IF EXISTS " + e.quote(name)
	if e == EnginePostgres {
		drop += " WITH (FORCE)"
	}
	return drop
}

// createLogin creates a login that may connect and nothing more.
func (e Engine) createLogin(user, password string) string {
	switch e {
	case EngineMySQL:
		return "CREATE USER " + e.literal(user) + "@'%' IDENTIFIED BY " + e.literal(password)
	case EngineSQLServer:
		return "CREATE LOGIN " + e.quote(user) + " WITH PASSWORD = " + e.literal(password)
	case EngineSQLite, EnginePostgres:
	}
	return "CREATE ROLE " + e.quote(user) + " LOGIN PASSWORD " + e.literal(password)
}

// dropLogin drops what createLogin created.
func (e Engine) dropLogin(user string) string {
	switch e {
	case EngineMySQL:
		return "DROP USER " + e.literal(user) + "@'%'"
	case EngineSQLServer:
		return "DROP LOGIN " + e.quote(user)
	case EngineSQLite, EnginePostgres:
	}
	return "DROP ROLE " + e.quote(user)
}
