package dialect

import (
	"fmt"
	"strings"
)

// Column is a column of an insert: its name and all its values, one for each
// row. Values are a []int64, []string or [][]byte; nil bytes are NULL.
type Column struct {
	Name   string
	Values any
}

// Statement is text and its arguments.
type Statement struct {
	Text string
	Args []any
}

// Insert returns the statements that insert rows from..to (to excluded) of the
// columns into a table, as few as the engine's limits allow.
func (d *Dialect) Insert(table string, columns []Column) []Statement {
	rows := columns[0].len()
	per := min(d.maxRows, d.maxArgs/len(columns))
	if d.arrays {
		per = d.maxRows
	}
	var statements []Statement
	for from := 0; from < rows; from += per {
		to := min(from+per, rows)
		if d.arrays {
			statements = append(statements, d.insertArrays(table, columns, from, to))
			continue
		}
		statements = append(statements, d.insertValues(table, columns, from, to))
	}
	return statements
}

// insertArrays passes each column as one array: one plan for any number of rows.
func (d *Dialect) insertArrays(table string, columns []Column, from, to int) Statement {
	names, params := make([]string, len(columns)), make([]string, len(columns))
	args := make([]any, len(columns))
	for i, c := range columns {
		names[i] = c.Name
		args[i], params[i] = c.array(from, to)
	}
	text := fmt.Sprintf("INSERT INTO {%s} (%s) SELECT * FROM unnest(%s)", table, strings.Join(names, ", "), strings.Join(params, ", "))
	return Statement{Text: d.SQL(text), Args: args}
}

func (d *Dialect) insertValues(table string, columns []Column, from, to int) Statement {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.Name
	}
	row := "(" + strings.TrimSuffix(strings.Repeat("?, ", len(columns)), ", ") + ")"
	text := fmt.Sprintf("INSERT INTO {%s} (%s) VALUES ", table, strings.Join(names, ", ")) +
		strings.TrimSuffix(strings.Repeat(row+", ", to-from), ", ")
	args := make([]any, 0, (to-from)*len(columns))
	for i := from; i < to; i++ {
		for _, c := range columns {
			args = append(args, c.value(i))
		}
	}
	return Statement{Text: d.SQL(text), Args: args}
}

func (c Column) len() int {
	switch v := c.Values.(type) {
	case []int64:
		return len(v)
	case []string:
		return len(v)
	}
	return len(c.Values.([][]byte))
}

func (c Column) value(i int) any {
	switch v := c.Values.(type) {
	case []int64:
		return v[i]
	case []string:
		return v[i]
	}
	return c.Values.([][]byte)[i]
}

func (c Column) array(from, to int) (values any, param string) {
	switch v := c.Values.(type) {
	case []int64:
		return v[from:to], "CAST(? AS bigint[])"
	case []string:
		return v[from:to], "CAST(? AS text[])"
	}
	return c.Values.([][]byte)[from:to], "CAST(? AS bytea[])"
}

// MaxAmong is how many numbers [Dialect.Among] takes.
const MaxAmong = 1000

// Among returns the condition that a column is one of at most [MaxAmong]
// numbers, and its arguments. Texts repeat, so that engines can keep their plans.
func (d *Dialect) Among(column string, numbers []int64) (condition string, args []any) {
	if d.arrays {
		return column + " = ANY (CAST(? AS bigint[]))", []any{numbers}
	}
	args = make([]any, len(numbers))
	for i, n := range numbers {
		args[i] = n
	}
	return column + " IN (" + strings.TrimSuffix(strings.Repeat("?, ", len(numbers)), ", ") + ")", args
}
