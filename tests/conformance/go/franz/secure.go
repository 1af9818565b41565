package main

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"headrace/tests/conformance/lines"
)

// seeds are the options of every client: the brokers, and how connections to them are secured.
func seeds(c lines.Command) ([]kgo.Opt, error) {
	options := []kgo.Opt{kgo.SeedBrokers(strings.Split(c.Bootstrap, ",")...)}
	encrypted, err := c.Secure.TLS()
	if encrypted != nil {
		options = append(options, kgo.DialTLSConfig(encrypted))
	}
	if c.Secure != nil && c.Secure.Mechanism != "" {
		options = append(options, kgo.SASL(mechanism(c.Secure)))
	}
	return options, err
}

func mechanism(how *lines.Secure) sasl.Mechanism {
	switch how.Mechanism {
	case "PLAIN":
		return plain.Auth{User: how.User, Pass: how.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: how.User, Pass: how.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: how.User, Pass: how.Password}.AsSha512Mechanism()
	}
	return oauth.Auth{Token: how.Token}.AsMechanism()
}
