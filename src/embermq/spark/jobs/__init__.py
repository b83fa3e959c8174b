"""Jobs over whole stores, one file each; `work.py` runs their pieces on the cluster.

A job is a function that takes a Spark session and plain values, and answers a plain value that the command line
shows as a table or as JSON. What runs in workers are module functions over picklable pieces: workers need this
package installed, and nothing else.
"""
