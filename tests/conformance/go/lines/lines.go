// Package lines is the conversation of a client of the conformance grid with the tests: a JSON object a line, in and out.
//
// A command is {"do": NAME, ...}; its answer is {"ok": ...} or {"error": TEXT, "code": KAFKA'S ERROR CODE}. Bytes are base64.
package lines

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
)

// Record is one record, as it is written or as it was read.
type Record struct {
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Timestamp *int64   `json:"timestamp"`
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []Header `json:"headers"`
	// Deliveries counts how often a share group has delivered it, this time included; 0 elsewhere.
	Deliveries int32 `json:"deliveries"`
}

// Header is a name and what may be null.
type Header struct {
	Name  string `json:"name"`
	Value []byte `json:"value"`
}

// Command has the fields of all commands; each uses those it needs.
type Command struct {
	Do         string   `json:"do"`
	Bootstrap  string   `json:"bootstrap"`
	Topic      string   `json:"topic"`
	Partitions int32    `json:"partitions"`
	Partition  *int32   `json:"partition"`
	Codec      string   `json:"codec"`
	Acks       int      `json:"acks"`
	Idempotent bool     `json:"idempotent"`
	Records    []Record `json:"records"`
	Consumer   string   `json:"consumer"`
	Producer   string   `json:"producer"`
	Isolation  string   `json:"isolation"`
	Target     string   `json:"target"`
	Commit     bool     `json:"commit"`
	How        string   `json:"how"`
	Position   int64    `json:"position"`
	Ms         int64    `json:"ms"`
	Group      string   `json:"group"`
	Strategy   string   `json:"strategy"`
	Instance   string   `json:"instance"`
	Protocol   string   `json:"protocol"`
	Regex      string   `json:"regex"`
	Name       string   `json:"name"`
	Value      string   `json:"value"`
	Version    string   `json:"version"`
	Secure     *Secure  `json:"secure"`
}

// Secure says how a connection is secured; a command without it means plain text. Files are PEM.
type Secure struct {
	CA          string `json:"ca"`
	Certificate string `json:"certificate"`
	Mechanism   string `json:"mechanism"`
	User        string `json:"user"`
	Password    string `json:"password"`
	Token       string `json:"token"`
}

// TLS is the configuration of an encrypted connection; nil for another one.
func (s *Secure) TLS() (*tls.Config, error) {
	if s == nil || s.CA == "" {
		return nil, nil
	}
	authority, err := os.ReadFile(s.CA)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(authority)
	if s.Certificate != "" {
		own, err := tls.LoadX509KeyPair(s.Certificate, s.Certificate)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}

// GroupState is what describing a group says.
type GroupState struct {
	State   string `json:"state"`
	Members int    `json:"members"`
}

// Serve answers commands until stdin ends; code gives Kafka's number of an error, or 0.
func Serve(run func(Command) (any, error), code func(error) int16) {
	input := bufio.NewReaderSize(os.Stdin, 1<<20)
	output := bufio.NewWriterSize(os.Stdout, 1<<20)
	encoder := json.NewEncoder(output)
	for {
		line, err := input.ReadBytes('\n')
		if err != nil {
			return
		}
		var command Command
		var value any
		if err = json.Unmarshal(line, &command); err == nil {
			value, err = run(command)
		}
		answer := map[string]any{"ok": value}
		if err != nil {
			answer = map[string]any{"error": fmt.Sprintf("%s: %v", command.Do, err), "code": code(err)}
		}
		if encoder.Encode(answer) != nil || output.Flush() != nil {
			return
		}
	}
}
