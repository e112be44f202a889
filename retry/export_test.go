package retry

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/shardway/shardway/internal/dialect"
)

// OwnErrors are the errors of the table of Shardway's own.
func OwnErrors() (names []string) {
	for _, row := range own {
		names = append(names, row.name)
	}
	return names
}

// NetworkNames are the names of the rows for faults of the network.
func NetworkNames() (names []string) {
	for _, row := range networkRows {
		names = append(names, row.name)
	}
	return names
}

// MongoNames are the names of the rows for MongoDB: labels, then codes.
func MongoNames() (names []string) {
	for _, row := range labels {
		names = append(names, strings.Join(row.all, "+"))
	}
	for _, row := range mongoCodes {
		names = append(names, strconv.Itoa(row.code))
	}
	return names
}

// Table is the table of docs/retry.md.
func Table() string {
	var b strings.Builder
	section := func(title, column string) {
		fmt.Fprintf(&b, "\n### %s\n\n| %s | meaning | class | in [Uncommitted] |\n|---|---|---|---|\n", title, column)
	}
	line := func(name, meaning string, v verdict) {
		in := ""
		if c := v.uncommitted().class(); c != v.class() {
			in = c.String()
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", name, meaning, v.class(), in)
	}
	section("Shardway", "error")
	for _, row := range own {
		line("`"+row.name+"`", row.meaning, row.verdict)
	}
	section("Network and contexts", "error")
	for _, row := range networkRows {
		line(strings.ReplaceAll(row.name, `"`, "`"), row.meaning, row.verdict)
	}
	for _, e := range [...][3]string{
		{"postgres", "PostgreSQL", "SQLSTATE"},
		{"mysql", "MySQL and MariaDB", "number"},
		{"sqlserver", "SQL Server and Azure SQL", "number"},
		{"sqlite", "SQLite", "code"},
	} {
		section(e[1], e[2])
		d, _ := dialect.For(e[0])
		for _, row := range d.Rows() {
			name := row.Code
			if e[0] == "postgres" && len(name) == 2 {
				name += "…"
			}
			if row.Text != "" {
				name += " with “" + row.Text + "”"
			}
			line(name, row.Meaning, verdicts[row.Repeat])
		}
	}
	section("MongoDB", "label or code")
	for _, row := range labels {
		line(strings.Join(row.all, " + "), row.meaning, row.verdict)
	}
	for _, row := range mongoCodes {
		line(strconv.Itoa(row.code), row.meaning, row.verdict)
	}
	return strings.ReplaceAll(b.String(), "[Uncommitted]", "`Uncommitted`")
}

// Spent returns the tenths of an attempt that a shard has used up.
func Spent(b *Budget, shard any) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.spent[shard]
}

// Shards returns how many shards a budget remembers.
func Shards(b *Budget) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.spent)
}
