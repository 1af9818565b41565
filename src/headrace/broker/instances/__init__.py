"""Instances in a running broker: what the controller decides and removes, what a tenant sees, and what may flow.

May know all services of the broker. Imported with the first instance, or the first request about one. Begin with
`tenants`, what clients see, which has the dispatcher of each instance: `fields` says what each field of a request and
response names, `translation` makes functions of that, and `dispatch` and `context` call them before and behind the
ordinary handlers, which work on services that hide what belongs to others. `administration` and `removal` are the
operator's side. `flow` limits what flows and what is stored.
"""
