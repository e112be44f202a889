package customers

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dialect"
	"github.com/shardway/shardway/sqlite"
)

// TestDemo_notices changes rows behind the story's back, in a way that leaves
// every row and sum plausible: the story must not end well.
func TestDemo_notices(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, line, shard string
		statements        []string
		want              string
	}{
		{"lost order", "A stale cache", "s1.db", []string{
			`DELETE FROM demo_order WHERE customer_id = 3 AND n = (SELECT max(n) FROM demo_order WHERE customer_id = 3)`,
			`UPDATE demo_customer SET orders = orders - 1, spent = (SELECT sum(amount) FROM demo_order WHERE customer_id = 3) WHERE customer_id = 3`,
		}, "customer 3 is"},
		{"lost before the copy", "waited for the", "s2.db", []string{
			`DELETE FROM demo_order WHERE customer_id = 1401`,
			`DELETE FROM demo_customer WHERE customer_id = 1401`,
		}, "customers to move: got 299, want 300"},
		{"changed on the source after the copy", "is online on s3", "s2.db", []string{
			`DELETE FROM demo_order WHERE customer_id = 1403 AND n = 1`,
		}, "deleting customer 1403"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			out := &at{line: c.line, do: func() { tamper(t, filepath.Join(dir, c.shard), c.statements) }}
			err := Demo(t.Context(), out, dir)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
			if strings.Contains(out.String(), "All counts are right") {
				t.Error("the story says that all counts are right")
			}
		})
	}
}

func file(t *testing.T, path string) *sql.DB {
	t.Helper()
	c, err := sqlite.Engine{}.Connector(path, "", shardway.Credentials{})
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(c)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// tamper runs statements on a file.
func tamper(t *testing.T, path string, statements []string) {
	t.Helper()
	db := file(t, path)
	for _, text := range statements {
		r, err := db.ExecContext(t.Context(), text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			return
		}
		if n, _ := r.RowsAffected(); n == 0 {
			t.Errorf("%s: changed nothing", text)
		}
	}
}

// TestRead reads rows that do not belong together.
func TestRead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, statement, want string }{
		{"whole", `SELECT 1`, ""},
		{"sum too great", `UPDATE demo_customer SET spent = spent + 1 WHERE customer_id = 2`, "customer 2 has 2 orders of"},
		{"count too great", `UPDATE demo_customer SET orders = orders + 1 WHERE customer_id = 5`, "customer 5 has 1 orders of"},
		{"gap", `DELETE FROM demo_order WHERE customer_id = 3 AND n = 2`, "customer 3 lacks order 2"},
		{"last order gone", `DELETE FROM demo_order WHERE customer_id = 3 AND n = 3`, "customer 3 has 2 orders of"},
		{"order without customer", `INSERT INTO demo_order VALUES (9, 1, 100)`, "1 orders belong to no customer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "shard.db")
			db := file(t, path)
			if err := db.Driver().(interface{ CreateDatabase() error }).CreateDatabase(); err != nil {
				t.Fatal(err)
			}
			d, err := dialect.For("sqlite")
			if err != nil {
				t.Fatal(err)
			}
			s := &story{dialect: d}
			var want []customer
			for id := range int64(6) {
				want = append(want, generated(id))
			}
			for _, err := range []error{
				execute(t.Context(), db, createCustomers),
				execute(t.Context(), db, createOrders),
				s.write(t.Context(), db, want),
				execute(t.Context(), db, c.statement),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			got, err := s.readWhole(t.Context(), db, everybody)
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want an error with %q", err, c.want)
				}
				return
			}
			if err != nil || checksum(got) != checksum(want) {
				t.Errorf("got %v, %v, want %v", got, err, want)
			}
		})
	}
}

func execute(ctx context.Context, db *sql.DB, text string) error {
	_, err := db.ExecContext(ctx, text)
	return err
}

func mapped(low, high int64) []shardway.Mapping {
	return []shardway.Mapping{{Range: shardway.Range{Low: shardway.Int64Key(low), High: shardway.Int64Key(high)}}}
}

// TestGather holds two shards against the map.
func TestGather(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		a, b []int64 // customers on shard a, which owns [1, 10), and b, which owns [10, 20)
		want string
	}{
		{"right", []int64{1, 9}, []int64{10, 19}, ""},
		{"on two shards", []int64{1, 9}, []int64{9, 10}, "customer 9 is on two shards, a and b"},
		{"on the wrong shard", []int64{1, 10}, []int64{11}, "customer 10 is on shard a, which does not own it"},
		{"mapped nowhere", []int64{1}, []int64{20}, "customer 20 is on shard b, which does not own it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			holdings := []holding{{shard: "a", mappings: mapped(1, 10)}, {shard: "b", mappings: mapped(10, 20)}}
			for _, id := range c.a {
				holdings[0].customers = append(holdings[0].customers, generated(id))
			}
			for _, id := range c.b {
				holdings[1].customers = append(holdings[1].customers, generated(id))
			}
			found, err := gather(holdings)
			if c.want == "" && (err != nil || len(found) != len(c.a)+len(c.b)) {
				t.Errorf("got %v, %v", found, err)
			}
			if c.want != "" && (err == nil || err.Error() != c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

// TestCompare and TestReview hold what was found against what must be there.
func TestCompare(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		change        func(found map[int64]customer)
		proof, review string // errors of the proof, and of the look at an earlier run
	}{
		{"right", func(map[int64]customer) {}, "", ""},
		{"customer lost", func(f map[int64]customer) { delete(f, 7) }, "customer 7 is lost", "of customers 1 to 600 only 599 are there"},
		{"loaded order lost", func(f map[int64]customer) { f[5] = customer{id: 5, name: f[5].name} }, "customer 5 is", "customer 5 is"},
		{"acknowledged write lost", func(f map[int64]customer) { f[8] = generated(8) }, "customer 8 is", ""},
		{"write twice", func(f map[int64]customer) {
			f[8] = customer{id: 8, name: f[8].name, orders: append(f[8].orders, f[8].orders...)}
		}, "customer 8 is", ""},
		{"name changed", func(f map[int64]customer) { f[9] = customer{id: 9, name: "Nobody", orders: f[9].orders} }, "customer 9 is", "customer 9 is"},
		{"stranger", func(f map[int64]customer) { f[population+1] = customer{id: population + 1} }, "customers on all shards: got 2001, want 2000", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := &story{book: &book{}, out: &page{w: &at{}}}
			s.book.fill()
			s.book.add(8, 4200)
			found := maps.Clone(s.book.customers)
			c.change(found)
			for _, check := range []struct {
				name, want string
				err        error
			}{{"proof", c.proof, s.compare(found)}, {"review", c.review, s.review(found)}} {
				if check.want == "" && check.err != nil || check.want != "" && (check.err == nil || !strings.Contains(check.err.Error(), check.want)) {
					t.Errorf("%s: got %v, want %q", check.name, check.err, check.want)
				}
			}
		})
	}
}

// TestSweep_keepsTheOnlyCopy must not delete a customer whose owner lacks it,
// or lacks an order.
func TestSweep_keepsTheOnlyCopy(t *testing.T) {
	t.Parallel()
	for name, owner := range map[string][]customer{
		"customer missing": nil,
		"order missing":    {{id: 12, name: "Ada", orders: []int64{100}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			holdings := []holding{
				{shard: "a", mappings: mapped(1, 10), customers: []customer{{id: 12, name: "Ada", orders: []int64{100, 200}}}},
				{shard: "b", mappings: mapped(10, 20), customers: owner},
			}
			// Without a program there is nobody who could delete.
			err := (&story{}).sweep(t.Context(), nil, holdings, &holdings[0])
			if err == nil || !strings.Contains(err.Error(), "customer 12 is on shard a") {
				t.Errorf("got %v, want an error that names customer 12", err)
			}
		})
	}
}

// TestPage_remembersFailure must not end well when the story cannot be written.
func TestPage_remembersFailure(t *testing.T) {
	t.Parallel()
	p := &page{w: closed{}}
	p.line("first")
	p.line("second")
	if !errors.Is(p.err, errClosed) {
		t.Errorf("got %v, want the error of the writer", p.err)
	}
}

var errClosed = errors.New("closed")

type closed struct{}

func (closed) Write([]byte) (int, error) { return 0, errClosed }
