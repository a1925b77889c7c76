package plan

import (
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"regexp"
	"strconv"
	"sync"
)

// quantity is an amount of a resource, in thousandths (appc, ace.md, Resource
// Isolators). appc's own package is unsuitable: it rejects the suffix K, which the
// specification allows, and its numbers overflow beyond an int64.
type quantity struct{ milli *big.Int }

// number is <sign><digits>.<digits><suffix or exponent>. The bounds limit the time that
// hostile input can take. The expression is compiled on first use: every container start
// executes this program again, and most never need it.
var number = sync.OnceValue(func() *regexp.Regexp { //nolint:gochecknoglobals // a constant, made late
	return regexp.MustCompile(`^([+-]?)([0-9]{0,64}(?:\.[0-9]{0,64})?)(m|[kKMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,3})?$`)
})

var errQuantity = errors.New(`must be a quantity such as 1000, "500m", "1.5G" or "64Mi"`)

// parseQuantity reads a JSON number or string. It rounds up to the next thousandth.
func parseQuantity(raw json.RawMessage) (quantity, error) {
	text := string(raw)
	if len(raw) > 0 && raw[0] == '"' {
		if err := json.Unmarshal(raw, &text); err != nil {
			return quantity{}, errQuantity
		}
	}
	m := number().FindStringSubmatch(text)
	if m == nil || m[2] == "" || m[2] == "." {
		return quantity{}, errQuantity
	}
	value, ok := new(big.Rat).SetString(m[1] + "0" + m[2])
	if !ok {
		return quantity{}, errQuantity
	}
	value.Mul(value, scale(m[3])).Mul(value, big.NewRat(1000, 1))
	milli, rest := new(big.Int).QuoRem(value.Num(), value.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		milli.Add(milli, big.NewInt(1))
	}
	return quantity{milli}, nil
}

// scale returns the factor that a suffix or an exponent stands for.
func scale(suffix string) *big.Rat {
	if suffix == "" {
		return big.NewRat(1, 1)
	}
	if suffix == "m" {
		return big.NewRat(1, 1000)
	}
	base, power := big.NewInt(1000), int64(map[byte]int{'k': 1, 'K': 1, 'M': 2, 'G': 3, 'T': 4, 'P': 5, 'E': 6}[suffix[0]])
	switch {
	case suffix[len(suffix)-1] == 'i':
		base = big.NewInt(1024)
	case len(suffix) > 1: // an exponent; the pattern allows no invalid one
		base = big.NewInt(10)
		power, _ = strconv.ParseInt(suffix[1:], 10, 64)
	}
	factor := new(big.Rat).SetInt(new(big.Int).Exp(base, big.NewInt(max(power, -power)), nil))
	if power < 0 {
		factor.Inv(factor)
	}
	return factor
}

// units returns the quantity in whole units, rounded up and capped to an int64.
func (q quantity) units() int64 {
	whole, rest := new(big.Int).QuoRem(q.milli, big.NewInt(1000), new(big.Int))
	if rest.Sign() > 0 {
		whole.Add(whole, big.NewInt(1))
	}
	return capped(whole)
}

// millis returns the quantity in thousandths, capped to an int64.
func (q quantity) millis() int64 { return capped(q.milli) }

func capped(n *big.Int) int64 {
	switch {
	case n.IsInt64():
		return n.Int64()
	case n.Sign() < 0:
		return math.MinInt64
	default:
		return math.MaxInt64
	}
}
