package customers

import (
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
)

// The customers have the ids 1 to population. The split is at splitAt, and the
// customers from there to moveEnd move.
const (
	population = 2000
	secondFrom = 601  // first customer of shard s2
	thirdFrom  = 1601 // first customer of shard s3
	splitAt    = 1301
	moveEnd    = thirdFrom
)

// customer is one customer with all orders.
type customer struct {
	id     int64
	name   string
	orders []int64 // amounts in cents; the order with number n is orders[n-1]
}

func (c customer) spent() (cents int64) {
	for _, amount := range c.orders {
		cents += amount
	}
	return cents
}

var (
	firstNames = [...]string{"Ada", "Alan", "Barbara", "Claude", "Donald", "Edsger", "Frances", "Grace", "Hedy", "John", "Katherine", "Leslie", "Margaret", "Niklaus", "Radia", "Tony"}
	lastNames  = [...]string{"Allen", "Dijkstra", "Hamilton", "Hoare", "Hopper", "Johnson", "Knuth", "Lamarr", "Lamport", "Liskov", "Lovelace", "McCarthy", "Perlman", "Shannon", "Turing", "Wirth"}
)

// generated returns a customer as loaded: the same in every run.
func generated(id int64) customer {
	random := rand.New(rand.NewPCG(uint64(id), 2000))
	c := customer{id: id, name: firstNames[random.IntN(len(firstNames))] + " " + lastNames[random.IntN(len(lastNames))]}
	for range id % 4 {
		c.orders = append(c.orders, amount(random))
	}
	return c
}

// amount returns what an order may cost, in cents.
func amount(random *rand.Rand) int64 { return 100 + random.Int64N(9900) }

// checksum returns a number that depends on every value of the customers, which
// must be ordered by id.
func checksum(customers []customer) string {
	h := fnv.New64a()
	for _, c := range customers {
		fmt.Fprintf(h, "%d %q %d\n", c.id, c.name, c.orders)
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

func countOrders(customers []customer) (n int) {
	for _, c := range customers {
		n += len(c.orders)
	}
	return n
}

// book holds what the databases must hold: the customers that were loaded and
// every order since whose commit was acknowledged. It is safe for concurrent use.
type book struct {
	mu        sync.Mutex // guards the fields below
	customers map[int64]customer
	added     int
}

// fill starts the book with the customers as loaded.
func (b *book) fill() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.customers = make(map[int64]customer, population)
	for id := int64(1); id <= population; id++ {
		b.customers[id] = generated(id)
	}
}

// add notes an acknowledged order.
func (b *book) add(id, cents int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.customers[id]
	c.orders = append(slices.Clip(c.orders), cents) // a new array: readers have the old one
	b.customers[id] = c
	b.added++
}

func (b *book) customer(id int64) customer {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.customers[id]
}

func (b *book) acknowledged() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.added
}

// all returns all customers, ordered by id.
func (b *book) all() []customer {
	b.mu.Lock()
	defer b.mu.Unlock()
	return byID(b.customers)
}

func byID(customers map[int64]customer) []customer {
	all := make([]customer, 0, len(customers))
	for _, id := range slices.Sorted(maps.Keys(customers)) {
		all = append(all, customers[id])
	}
	return all
}
